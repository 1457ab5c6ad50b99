"""What all programs share: the tools' work, the model's address and the folder for files.

`pay_slowly` waits before and after the money moves, as a request to a bank does.
"""

import asyncio

from ..world import GO_ON, base_url, folder, look_up, move_money, receipt

__all__ = ["GO_ON", "base_url", "folder", "look_up", "pay_in_thread", "pay_slowly"]


async def pay_slowly(name):
    await asyncio.sleep(0.001)
    move_money(name)
    await asyncio.sleep(0.001)
    return receipt(name)


def pay_in_thread(name):
    move_money(name)
    return receipt(name)
