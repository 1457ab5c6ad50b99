"""@tool: schemas, validation, execution, and the conversion of results and errors to text."""

from __future__ import annotations

import asyncio
import contextvars
import enum
import functools
import gc
import json
import threading
import weakref
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, SecretStr
from typing_extensions import TypedDict

from agentloop import Agent, ScriptedModel
from agentloop.content import describe_error, to_content
from agentloop.errors import ToolError
from agentloop.messages import ImagePart, TextPart, ToolCall, ToolMessage, text_of
from agentloop.models.scripted import call as model_call
from agentloop.tools import FunctionTool, Tool, by_name, tool
from agentloop.waiting import call_function
from tests.properties import given, st


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Box:
    width: int
    tags: set[str] = field(default_factory=set)


class Row(TypedDict):
    id: int
    note: str


class Node(BaseModel):
    title: str
    children: list[Node] = []


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    tags: set[str]


def properties(the_tool: Tool) -> dict[str, Any]:
    result: dict[str, Any] = the_tool.parameters["properties"]
    return result


def problem(the_tool: Tool, arguments: Any) -> str:
    """Return the error message for invalid arguments."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    with pytest.raises(ToolError) as caught:
        the_tool.validate(text)
    return str(caught.value)


async def call(the_tool: Tool, arguments: Any = None, **options: Any) -> Any:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return await the_tool.execute(the_tool.validate(text), **options)


# ---- definition


async def test_a_decorator_without_arguments_uses_the_name_and_docstring_of_the_function() -> None:
    @tool
    async def add(a: int, b: int = 2) -> int:
        """Adds two numbers.

        Args:
            a: the first
            b: the second
        """
        return a + b

    assert (add.name, add.description) == ("add", "Adds two numbers.")
    assert add.parameters == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first"},
            "b": {"type": "integer", "description": "the second", "default": 2},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert await add(1, b=2) == 3


def test_options_are_attributes_with_defaults() -> None:
    options = {"ephemeral": True, "timeout": 2.5, "parallel": False, "idempotent": True}
    custom = tool("Says hi.", name="hi", **options)(ping.function)
    other = tool(description="Says hi.", name="hi")(lambda: "hi")
    assert (
        (custom.name, custom.description) == (other.name, other.description) == ("hi", "Says hi.")
    )
    assert {name: getattr(custom, name) for name in options} == options
    for plain in (other, Tool("hi")):
        names = (*options, "read_only", "external")
        assert [getattr(plain, name) for name in names] == [0, None, True, False, False, False]
    assert (custom.__name__, custom.__doc__) == ("ping", "Says pong.")
    assert other.parameters == {"type": "object", "properties": {}, "additionalProperties": False}


class Counter:
    def __init__(self) -> None:
        self.count = 0

    @tool("Counts up.")
    async def up(self, by: int = 1) -> int:
        self.count += by
        return self.count

    @staticmethod
    @tool("Test")
    def double(x: int) -> int:
        return 2 * x


async def test_a_decorated_method_is_bound_to_its_instance() -> None:
    one, two = Counter(), Counter()
    assert await call(one.up, {"by": 5}) == 5
    assert await call(one.up) == 6
    assert await two.up(by=1) == 1
    assert list(properties(one.up)) == ["by"]
    assert await call(Counter.double, {"x": 4}) == 8
    assert isinstance(Counter.up, FunctionTool)


async def test_lambdas_partials_and_callable_objects_can_be_tools() -> None:
    async def scale(factor: int, x: int) -> int:
        return factor * x

    class Square:
        def __call__(self, x: int) -> int:
            return x * x

    triple = tool("Test", name="triple")(functools.partial(scale, factor=3))
    assert list(properties(triple)) == ["x"]
    assert await call(triple, {"x": 2}) == 6
    assert "factor" in problem(triple, {"x": 2, "factor": 9})
    assert await call(tool("Square")(Square()), {"x": 3}) == 9
    assert await call(tool("Scale", name="f")(lambda: scale(2, 3))) == 6


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ü", "x" * 65, "a\n"])
def test_a_name_that_providers_reject_is_an_error(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 64 letters, digits"):
        Tool(name)


def untyped(x: int, y) -> None: ...  # type: ignore[no-untyped-def]
def collected(*rest: int) -> None: ...
def named(**rest: int) -> None: ...
def positional(x: int, /) -> None: ...
def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def unknown(sql: str, db: threading.Thread) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (untyped, "tool 'untyped': parameter 'y' needs a type annotation"),
        (collected, "tool 'collected': parameter 'rest' is variadic positional"),
        (named, "tool 'named': parameter 'rest' is variadic keyword"),
        (positional, "tool 'positional': parameter 'x' is positional-only"),
        (generator, "tool 'generator' must not be a generator function: return a list"),
        (async_generator, "tool 'async_generator' must not be a generator function: return a list"),
        (unknown, r"tool 'unknown': .* inject it with Depends.*Thread"),
    ],
)
def test_an_unsupported_signature_raises_type_error_with_the_reason(
    function: Any, reason: str
) -> None:
    with pytest.raises(TypeError, match=reason):
        tool(function)


def test_duplicate_names_and_undecorated_functions_are_errors() -> None:
    by_name([Tool("a"), Tool("b")])
    with pytest.raises(ValueError, match=r"'a'.*name="):
        by_name([Tool("a"), Tool("b"), Tool("a")])
    with pytest.raises(TypeError, match="@tool"):
        by_name([Tool("a"), print])
    with pytest.raises(TypeError, match=r"\*tools"):
        by_name([[Tool("a")]])


# ---- schemas


@pytest.mark.parametrize(
    ("kind", "sent", "value"),
    [
        (int, "3", 3),
        (bool, "true", True),
        (Colour, "red", Colour.RED),
        (int | None, None, None),
        (tuple[int, str], ["1", "a"], (1, "a")),
        (Box, {"width": 1, "tags": ["a"]}, Box(1, {"a"})),
        (Row, {"id": 1, "note": "n"}, {"id": 1, "note": "n"}),
        (Strict, {"tags": ["a"]}, Strict(tags={"a"})),
        (Point | None, {"x": 1}, Point(x=1)),
        (datetime, "2024-02-03T04:05:06", datetime(2024, 2, 3, 4, 5, 6)),
        (list["Point"], [{"x": 1}], [Point(x=1)]),
        (RootModel[list[int]], [1], RootModel[list[int]]([1])),
    ],
)
def test_types_supported_by_pydantic_are_supported(kind: Any, sent: Any, value: Any) -> None:
    def f(arg: Any, other: int = 0) -> None: ...

    f.__annotations__["arg"] = kind
    the_tool = tool("Test")(f)
    json.dumps(the_tool.parameters, allow_nan=False)
    assert the_tool.parameters["required"] == ["arg"]
    assert the_tool.validate(json.dumps({"arg": sent})) == {"arg": value, "other": 0}


async def test_defaults_are_passed_unchanged() -> None:
    sentinel, infinite = object(), float("inf")

    @tool("Test")
    async def f(x: Any = sentinel, inf: float = infinite, a: int = Field(4)) -> Any:
        return x, inf, a

    assert await call(f) == (sentinel, infinite, 4)
    assert "default" not in properties(f)["x"]
    assert properties(f)["inf"]["default"] == "Infinity"  # valid JSON


def test_enums_literals_and_constraints_are_in_the_schema() -> None:
    @tool("Test")
    def f(
        colour: Colour,
        size: Literal[1, 2],
        n: Annotated[int, Field(ge=1, description="how many")] = 3,
        m: int = Field(4, description="more"),
        k: Annotated[int, Field(default=5)] = 6,
    ) -> None:
        """
        Args:
            n: not this one
            colour: which
        """

    colour = properties(f).pop("colour")
    assert colour["description"] == "which"
    assert properties(f) == {
        "size": {"enum": [1, 2], "type": "integer"},
        "n": {"type": "integer", "minimum": 1, "description": "how many", "default": 3},
        "m": {"type": "integer", "description": "more", "default": 4},
        "k": {"type": "integer", "default": 6},
    }
    assert f.parameters["$defs"]["Colour"]["enum"] == ["red", "blue"]
    assert f.parameters["required"] == ["colour", "size"]


async def test_a_parameter_may_have_any_name_and_generated_titles_are_omitted() -> None:
    @tool("Test")
    def f(schema: int, json: int, _x: int, model_config: int, copy: int, args: int) -> Any:
        return [*locals().items()]

    @tool("Test")
    def save(title: str, node: Node, mapping: dict[str, str]) -> None: ...

    arguments = dict(zip(properties(f), range(6), strict=True))
    assert await call(f, arguments) == [*arguments.items()]
    assert properties(save)["title"] == {"type": "string"}
    assert "title" not in {**save.parameters, **properties(save)["mapping"]}
    assert save.parameters["$defs"]["Node"]["properties"]["title"] == {"type": "string"}


async def test_the_fields_of_a_single_model_are_the_arguments() -> None:
    @tool("Test")
    async def move(to: Point) -> Point:
        return to

    assert set(properties(move)) == {"x", "y"}
    assert await call(move, {"x": "1"}) == Point(x=1)
    assert "x: Input should be" in problem(move, {"x": "?"})
    assert plant.parameters["type"] == "object", "also a recursive model"
    tree = {"title": "a", "children": [{"title": "b"}]}
    assert plant.validate(json.dumps(tree)) == {"root": Node.model_validate(tree)}


# ---- validation


@tool("Test")
def search(query: str, limit: int = 10, tags: list[str] | None = None) -> None: ...


@tool
def ping() -> str:
    """Says pong."""
    return "pong"


@pytest.mark.parametrize("arguments", ["", "  \n", "null", "{}", '"{}"', '""', '"null"'])
def test_empty_arguments_are_read_as_an_empty_object(arguments: str) -> None:
    assert ping.validate(arguments) == {}


def test_errors_for_invalid_json_name_the_position_and_never_contain_the_text() -> None:
    for arguments, shown in ("[]", "[]"), ("5", "5"), ("true", "True"):
        assert problem(ping, arguments) == f"arguments must be a JSON object, not {shown}"
    text = problem(search, '{"query": "secret words", "limit"')
    assert "line 1 column 33" in text
    assert "secret" not in text
    assert "NaN" not in problem(search, '{"query": NaN}')


def test_nan_and_infinity_are_invalid_json_and_not_null() -> None:
    @tool("Test")
    def wait(seconds: float | None = None) -> None: ...

    for number in ("NaN", "Infinity", "-Infinity"):
        text = f'{{"seconds": {number}}}'
        assert "invalid JSON" in problem(wait, text)
        assert ToolCall("1", "wait", text).parsed is None


def test_each_invalid_field_is_reported_in_one_short_line() -> None:
    text = problem(search, {"limit": "abc" * 50, "tags": [1, "a"], "lmit": 1, "zzz": {}})
    assert text.splitlines() == [
        "query: Field required (got {'limit': 'abcabcabcabcabcabcabcabcabcab)",
        "limit: Input should be a valid integer, unable to parse string as an integer "
        "(got 'abcabcabcabcabcabcabcabcabcabcabcabcabc)",
        "tags.0: Input should be a valid string (got 1)",
        "lmit: Extra inputs are not permitted (got 1)",
        "zzz: Extra inputs are not permitted (got {})",
    ]
    text = problem(search, {f"argument number {i} " + "x" * 100: i for i in range(1000)})
    assert (len(text.splitlines()), len(text) < 2000) == (10, True)


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ('{"query": "a", "limit": "3"}', 3),
        ('{"query": "a", "limit": null}', 10),  # null instead of the default
        (json.dumps('{"query": "a", "limit": 3}'), 3),  # encoded twice
    ],
)
def test_numbers_in_strings_null_defaults_and_double_encoding_are_accepted(
    arguments: str, value: int
) -> None:
    assert search.validate(arguments) == {"query": "a", "limit": value, "tags": None}
    assert problem(search, {"query": 5}) == "query: Input should be a valid string (got 5)"


def test_a_list_or_object_sent_as_a_string_is_decoded_if_a_string_is_invalid() -> None:
    @tool("Test")
    def f(
        text: str,
        either: str | list[int],
        anything: Any,
        d: dict[str, Any] | int = 0,
        box: Box | None = None,
        points: tuple[Point, ...] = (),
    ) -> None: ...

    strings = {"text": '{"x": 1}', "either": "[1]", "anything": "[1]"}
    sent = {"d": '{"a": "[1]"}', "box": '{"width": 2}', "points": '[{"x": 4}]'}
    decoded = {"d": {"a": "[1]"}, "box": Box(2), "points": (Point(x=4),)}
    assert f.validate(json.dumps(strings | sent)) == strings | decoded
    message = "points: Input should be a valid array (got '[1')"
    assert message in problem(f, strings | {"points": "[1"})


def test_an_error_in_an_object_does_not_affect_an_argument_of_the_same_name() -> None:
    @tool("Test")
    def plot(point: Point, x: str) -> None: ...

    assert problem(plot, {"point": {"x": "east"}, "x": "5"}).startswith("point.x: ")
    assert "\n" not in problem(plot, {"point": {"x": "east"}, "x": "5"})


@pytest.mark.parametrize(
    ("schema", "arguments"),
    [
        ({"properties": {"a": {"type": "integer"}}, "required": ["a"]}, {}),
        ({"properties": {"a": {"type": "integer"}}}, {"a": "x"}),
        ({"properties": {"a": {"type": "number"}}}, {"a": "x"}),
        ({"properties": {"a": {"type": "boolean"}}}, {"a": "x"}),
        ({"properties": {"a": {"enum": ["x", "y"]}}}, {"a": "z"}),
        ({"properties": {"a": {"type": "array", "items": {"type": "string"}}}}, {"a": [1]}),
        ({"properties": {"a": {"type": "object", "required": ["b"]}}}, {"a": {}}),
        ({"properties": {"a": {"type": ["integer", "null"]}}}, {"a": "x"}),
        ({"properties": {"a": {}}, "additionalProperties": False}, {"b": 1}),
    ],
)
def test_arguments_that_violate_a_hand_written_schema_are_errors(
    schema: Any, arguments: Any
) -> None:
    assert problem(Tool("order", parameters=schema), arguments)


def test_arguments_that_match_a_hand_written_schema_are_unchanged() -> None:
    kinds: dict[str, Any] = {
        "text": {"type": "string"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "either": {"type": ["integer", "string"]},
        "choice": {"enum": ["x", "y"]},
        "odd": {"type": "of another standard"},
        "free": {},
    }
    sent = {
        "text": "a",
        "list": [1, 2],
        "either": "c",
        "choice": "y",
        "odd": "b",
        "free": [None],
        "more": 1,
    }
    assert Tool("order", parameters={"properties": kinds}).validate(json.dumps(sent)) == sent


json_values = st.recursive(
    st.none() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(st.text() | json_values.map(json.dumps))
def test_any_arguments_are_valid_or_raise_tool_error(text: str) -> None:
    for the_tool in (search, ping, keep, plant):
        with suppress(ToolError):
            the_tool.validate(text)


@tool("Test")
def keep(value: Any) -> None: ...


@tool("Test")
def plant(root: Node) -> None: ...


# ---- execution


async def test_a_synchronous_function_runs_in_a_daemon_thread_with_the_context_of_the_caller() -> (
    None
):
    @tool("Test")
    def who() -> tuple[str, bool]:
        name = user.get()
        user.set("changed in the thread")
        return name, threading.current_thread().daemon

    user = contextvars.ContextVar[str]("user")
    user.set("ada")
    assert await call(who) == ("ada", True)
    assert user.get() == "ada"


async def test_call_function_runs_synchronous_functions_in_a_thread_and_others_not() -> None:
    async def here() -> int:
        return threading.get_ident()

    assert await call_function(threading.get_ident) != threading.get_ident()
    assert await call_function(here) == threading.get_ident()


async def test_a_cancellation_after_a_function_has_returned_is_raised_at_the_next_await(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def notify(*args: Any) -> None:
        call_soon(*args)
        is_notified.set()

    async def work_and_wait() -> None:
        results.append(await call_function(started.set))
        await asyncio.Event().wait()

    started, is_notified, results = threading.Event(), threading.Event(), list[Any]()
    loop = asyncio.get_running_loop()
    call_soon = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", notify)
    task = asyncio.create_task(work_and_wait())
    while not started.is_set():
        await asyncio.sleep(0)
    assert is_notified.wait(5)  # the thread has notified the event loop, which has not reacted yet
    task.cancel()
    await asyncio.wait([task], timeout=5)
    assert results == [None]
    assert task.cancelled()


async def test_a_tool_without_execute_raises_not_implemented_error() -> None:
    assert repr(Tool("look")) == "Tool('look')"
    with pytest.raises(NotImplementedError):
        await Tool("look").execute({})


async def test_forty_blocked_synchronous_tools_do_not_delay_another_tool() -> None:
    release = threading.Event()
    together = threading.Barrier(41)

    @tool("Test")
    def block() -> bool:
        together.wait(60)
        return release.wait(60)

    tasks = [asyncio.ensure_future(call(block)) for _ in range(40)]
    await asyncio.to_thread(together.wait, 60)
    assert await call(ping) == "pong"
    release.set()
    assert await asyncio.gather(*tasks) == [True] * 40


# ---- results


class Unprintable(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    __str__ = __repr__


cyclic: list[Any] = []
cyclic.append(cyclic)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("plain", "plain"),
        (3, "3"),
        ({"a": "München 北京"}, '{"a":"München 北京"}'),
        ([1.5, float("nan"), {"x": float("-inf")}], '[1.5,"NaN",{"x":"-Infinity"}]'),
        (datetime(2024, 1, 2), "2024-01-02T00:00:00"),
        (Box(1), '{"width":1,"tags":[]}'),
        ([Point(x=1)], '[{"x":1,"y":0}]'),
        (Colour.RED, "red"),
        (SecretStr("key"), "**********"),
        (b"12345", "<5 bytes>"),
        ({"a": b"\xff"}, '{"a":"_w=="}'),
        ({"a": "x\ud800"}, "{'a': 'x\\ud800'}"),
        ("x\ud800", "x\ufffd"),
        ({(1, 2): 3, None: 4, 5: 6}, '{"1,2":3,"None":4,"5":6}'),
        (cyclic, "[[...]]"),
        ([Unprintable()], "<list>"),
        (ValueError("x"), "ValueError('x')"),
    ],
)
def test_a_result_is_converted_to_text(value: Any, text: str) -> None:
    assert to_content(value, 1000) == text
    ToolMessage("1", "t", to_content(value, 1000))


def test_text_and_image_parts_are_kept_in_results() -> None:
    image, text = ImagePart(url="https://example.org/a.png"), TextPart("text")
    assert to_content(image, 100) == (image,)
    assert to_content([image, "text", {"a": 1}], 100) == (image, text, TextPart('{"a":1}'))
    assert to_content((text,), 100) == (text,)


def test_a_long_result_is_truncated_in_the_middle() -> None:
    assert to_content("a" * 60 + "b" * 123_456 + "c" * 60, 120) == (
        "a" * 60 + "\n[... 123,456 characters omitted ...]\n" + "c" * 60
    )
    assert to_content("x" * 120, 120) == "x" * 120


def test_the_limit_applies_to_the_total_text_of_a_result() -> None:
    content = to_content([TextPart("x" * 99_000) for _ in range(100)], 100_000)
    assert not isinstance(content, str)
    assert len(text_of(content)) < 100_200
    assert content[0] == TextPart("x" * 99_000)
    assert text_of(content[1:2]).endswith("[... 98,000 characters omitted ...]\n" + "x" * 500)
    assert content[2:] == (TextPart("[98 more parts omitted: the result is too large.]"),)


@pytest.mark.parametrize(
    ("count", "size", "kept"),
    [
        (1_000, 1_000, 1_000),
        (5, 5_000_000, 4),
        (1, 20_000_000, 1),
        (1, 20_000_001, 0),
    ],
)
def test_images_in_a_result_are_limited_by_their_total_size(
    count: int, size: int, kept: int
) -> None:
    images = [ImagePart(data=b"x" * size, media_type="image/png")] * count
    content = to_content([*images, "the end"], 100)
    assert [part for part in content if isinstance(part, ImagePart)] == images[:kept]
    omission = f"[{count - kept} more parts omitted: the result is too large.]"
    texts = [part.text for part in content if isinstance(part, TextPart)]
    assert texts == (["the end", omission] if kept < count else ["the end"])


def test_data_urls_count_as_images_and_parts_after_a_full_limit_are_omitted() -> None:
    short = TextPart("x" * 9), TextPart("y")
    assert to_content(short, 10) == short
    image = ImagePart(url="data:image/png;base64," + "x" * 20_000_000)
    content = to_content(["x" * 10, image, "y"], 10)
    assert content == (
        TextPart("x" * 10),
        TextPart("[2 more parts omitted: the result is too large.]"),
    )


keys = st.text() | st.integers() | st.tuples(st.integers()) | st.none()
anything: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.floats(), st.binary(), st.datetimes(), st.decimals())
    | st.one_of(st.complex_numbers(), st.builds(Unprintable), st.text(st.characters()))
    | st.sampled_from([print, Colour.RED, Colour, Path("x"), Point(x=1), cyclic]),
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner),
)


@given(anything, st.integers(0, 100))
def test_any_result_of_a_tool_is_converted_to_valid_text(value: Any, limit: int) -> None:
    content = to_content(value, limit)
    assert isinstance(content, str)
    content.encode()
    assert len(content) <= limit + 60


# ---- errors


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("user_id"), "KeyError: 'user_id'"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("first\nsecond"), "ValueError: first"),
        (ExceptionGroup("unhandled", [ValueError("inner")]), "ValueError: inner"),
        (ExceptionGroup("two", [ValueError("x"), KeyError(1)]), "ValueError: x; KeyError: 1"),
        (type("Odd", (Exception,), {"exceptions": None})("x"), "Odd: x"),
        (Unprintable(), "Unprintable: <Unprintable>"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (ValueError("x\ud800"), "ValueError: x\ufffd"),
    ],
)
def test_an_error_is_described_by_its_type_and_first_line(error: BaseException, text: str) -> None:
    assert describe_error(error) == text


def test_the_description_of_an_error_has_at_most_500_characters() -> None:
    for error in (ValueError("x" * 600), ExceptionGroup("two", [ValueError("x" * 300)] * 2)):
        assert len(describe_error(error)) == 500


def test_an_error_in_a_signature_contains_the_name_passed_to_the_decorator():
    with pytest.raises(TypeError, match="'find'.*'what'.*type"):

        @tool("Find", name="find")
        def search(what): ...


@pytest.mark.parametrize("fails", [False, True])
async def test_a_returned_generator_is_converted_to_a_list_or_an_error(fails):
    @tool
    def rows() -> object:
        """List rows."""

        def generate():
            yield 1
            if fails:
                raise OSError("half-way")
            yield 2

        return generate()

    agent = Agent(llm=ScriptedModel(model_call("rows"), "done"), tools=[rows])
    await agent.run("go")
    result = agent.messages[2]
    assert (result.text, result.is_error) == (
        ("OSError: half-way", True) if fails else ("[1,2]", False)
    )


def test_a_schema_nested_too_deeply_is_an_error_with_the_name_of_the_tool():
    schema = {"type": "string"}
    for _ in range(300):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ValueError, match=r"'deep'.*depth"):
        Tool("deep", parameters=schema)


# ---- tools made again from the same function


def test_tools_of_one_function_share_their_schema_and_are_released_with_it():
    async def note(number: int) -> str:
        "Take a note."
        return "noted"

    first, second = tool(note), tool(note)
    renamed = tool("Write down.", name="write")(note)
    assert first.parameters is second.parameters
    assert (renamed.name, renamed.description) == ("write", "Write down.")
    with pytest.raises(ToolError, match="number"):
        second.validate("{}")
    function = weakref.ref(note)
    del note, first, second, renamed
    gc.collect()
    assert function() is None


def test_a_function_with_a_new_docstring_has_a_new_description():
    def note(number: int) -> str:
        "Take a note."
        return "noted"

    assert tool(note).description == "Take a note."
    note.__doc__ = "Write it down."
    assert tool(note).description == "Write it down."


@pytest.mark.parametrize("timeout", [0, -1, "10", "x"])
def test_a_timeout_that_is_no_positive_number_is_an_error(timeout: Any) -> None:
    with pytest.raises(TypeError, match="timeout"):
        Tool("look", timeout=timeout)


def test_tools_of_one_function_may_have_different_types() -> None:
    def look(x): ...  # type: ignore

    for kind, name in ((int, "integer"), (str, "string")):
        look_tool = FunctionTool(look, "Look", types={"x": kind})
        assert look_tool.parameters["properties"]["x"]["type"] == name


def test_a_negative_number_of_ephemeral_results_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least 0, not -1"):
        Tool("look", ephemeral=-1)


def test_tools_may_be_elements_of_a_set():
    one, other = (tool("Say", name=name)(lambda: "") for name in ("one", "other"))
    assert one in {one}
    assert other not in {one}
