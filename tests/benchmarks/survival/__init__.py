"""What survives a kill, a cancellation, a failure and a full disk, here and in other libraries.

    python -m tests.benchmarks.survival            # install the peers, run all rows, write the page
    python -m tests.benchmarks.survival --only strands

`programs/` has one program per library, each written as the library's documentation recommends.
`world.py` is the ledger they pay from, `server.py` the model, `rows.py` the faults, `page.py` the
page. Needs a POSIX system: faults happen in forked processes.
"""
