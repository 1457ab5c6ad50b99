"""Records: conversion to JSON and back without loss."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from agentloop import Agent, ScriptedModel, tool
from agentloop.common.records import dump_record, from_dict, load_record, to_dict
from agentloop.common.review import Decision
from agentloop.common.summary import Summary
from agentloop.messages import (
    TAGS,
    AssistantMessage,
    Citation,
    FilePart,
    ImagePart,
    Result,
    Stop,
    SystemMessage,
    TaskComplete,
    TextPart,
    ToolCall,
    ToolMessage,
    Unknown,
    Usage,
    UserMessage,
    UserOrigin,
    clean_text,
    frozen,
)
from agentloop.transcript import (
    Mark,
    Reset,
    RunEnd,
    RunStart,
    SideRequest,
    ToolStart,
)
from tests.properties import example, given, st

texts = st.text(st.characters(codec="utf-8"))
any_text = st.text(st.characters(exclude_categories=()))  # lone surrogates too
numbers = st.integers(0, 10**9)
usages = st.none() | st.builds(Usage, numbers, numbers, numbers, numbers, numbers)
parts = st.one_of(
    st.builds(TextPart, any_text),
    st.builds(ImagePart, url=texts.map("a:".__add__)),
    st.builds(ImagePart, data=st.binary(max_size=20), media_type=st.just("image/png")),
    st.builds(FilePart, data=st.binary(max_size=20), media_type=texts.filter(bool), name=texts),
)
contents = any_text | st.lists(parts, min_size=1, max_size=3)
some_calls = st.lists(st.builds(ToolCall, any_text, any_text, any_text), max_size=3).map(tuple)
maybe_text = st.none() | any_text
raws = st.recursive(
    st.none() | st.booleans() | numbers | any_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
records = st.one_of(
    st.builds(UserMessage, contents, st.sampled_from(get_args(UserOrigin))),
    st.builds(AssistantMessage, any_text, some_calls, maybe_text, usages, st.none() | texts, raws),
    st.builds(ToolMessage, texts, texts, contents, st.booleans(), st.integers(0, 9)),
    st.builds(SystemMessage, any_text),
    st.builds(RunStart, at=st.floats(0, 1e10)),
    st.builds(RunEnd, texts),
    st.builds(ToolStart, texts),
    st.builds(Reset),
    st.builds(Summary, any_text, numbers, usage=usages),
    st.builds(Decision, texts, st.booleans(), any_text),
    st.builds(SideRequest, usage=usages),
)


@example(UserMessage([FilePart(data=b"\xff", media_type="image/png")]))
@given(records)
def test_every_record_is_restored_from_its_line(record):
    line = dump_record(record)
    assert b"\n" not in line
    json.loads(line)  # strict JSON, for other readers too
    again = load_record(line)
    assert type(again) is type(record)
    assert dump_record(again) == line


def test_unknown_fields_records_and_parts_are_preserved_at_every_level():
    data = {
        "type": "assistant",
        "content": "x",
        "tool_calls": [{"id": "1", "name": "x", "arguments": "[]", "extra": {"index": 4}}],
        "usage": {"input_tokens": 1, "extra": {"audio_tokens": 9}},
        "extra": {"mood": "good"},
    }
    assert to_dict(from_dict(data)) == data, "fields with their default are not written"
    newer_call = {"id": "1", "name": "x", "mood": "good"}
    reply = from_dict({"type": "assistant", "tool_calls": [newer_call]})
    assert reply.tool_calls[0].extra == {"mood": "good"}
    newer = {"type": "assistant", "content": "x", "mood": "good", "extra": {"mine": 1}}
    assert from_dict(newer).extra == {"mood": "good", "mine": 1}
    assert load_record(b'{"type":"telepathy","x":[1]}') == Unknown({"type": "telepathy", "x": [1]})
    assert load_record(b'{"type":["user"]}') == Unknown({"type": ["user"]})
    line = b'{"type":"user","content":[{"type":"video","url":"u"}]}'
    assert dump_record(load_record(line)) == line


@pytest.mark.parametrize(
    "line",
    [
        *(b"[]", b"7", b"{", b"\xff", b'{"type":"user"}', b"", b"{}"),
        # known fields of a wrong type
        b'{"type":"tool","tool_call_id":7,"tool_name":"t","content":"x"}',
        b'{"type":"user","content":"x","origin":"nobody"}',
        b'{"type":"user","content":"x","extra":[1]}',
        b'{"type":"assistant","usage":{"input_tokens":"many"}}',
        b'{"type":"assistant","tool_calls":[{"id":"1","name":["t"]}]}',
        b'{"type":"assistant","seconds":"1"}',
        b'{"type":"summary","content":"x","keep":"all","at":1}',
        b'{"type":"run_end","stop_reason":"completed","at":null}',
        b'{"type":"decision","call_id":"1","allowed":1}',
    ],
)
def test_a_line_without_a_valid_record_raises_value_error(line):
    with pytest.raises(ValueError, match=r".+"):
        load_record(line)


@pytest.mark.parametrize("part", [ImagePart, FilePart])
@pytest.mark.parametrize("url", ["cat.png", "/home/ada/cat.png", b"\x89PNG:", Path("cat.png")])
def test_an_attachment_that_is_no_address_is_refused_and_the_message_says_how_to_attach_a_file(
    part, url
):
    with pytest.raises(ValueError, match="data=Path"):
        part(url)


@pytest.mark.parametrize(
    ("broken", "clean"),
    [("a\ud800b", "a\ufffdb"), ("\ud83d\ude00", "😀"), ("\udc00", "\ufffd"), ("é", "é")],
)
def test_lone_surrogates_in_texts_are_replaced_at_construction(broken, clean):
    assert clean_text(broken) == clean
    assert UserMessage(broken).text == clean
    assert AssistantMessage(broken, thinking=broken).thinking == clean
    assert ToolMessage("1", "t", [broken]).text == clean
    assert ToolCall("1", "t", broken).arguments == clean
    assert FilePart(data=b"x", media_type="text/plain", name=broken).name == clean
    assert ImagePart(url=f"a:{broken}").url == f"a:{clean}"


@pytest.mark.parametrize(
    "record",
    [
        UserMessage("hi", extra={"card": 4711}),
        FilePart(data=b"4711", media_type="text/plain"),
        Citation(raw={"id": 4711}),
        AssistantMessage(raw={"id": 4711}, model="m-4711", seconds=4711),
        ToolMessage("1", "pay", "ok", seconds=4711),
        RunStart(at=0, tools=["4711"]),
        RunEnd("completed", at=0, text="4711"),
    ],
)
def test_a_repr_omits_fields_that_are_long_secret_or_variable(record):
    assert "4711" not in repr(record)


def test_equality_of_messages_ignores_durations_and_the_name_of_the_model():
    assert AssistantMessage("hi", model="large", seconds=1.5) == AssistantMessage("hi")
    assert ToolMessage("1", "pay", "ok", seconds=1.5) == ToolMessage("1", "pay", "ok")
    assert RunEnd("completed", at=0, text="hi") == RunEnd("completed", at=0)


def test_records_with_any_data_of_providers_and_applications_are_hashable():
    reply = AssistantMessage("hi", raw=[{"type": "text"}], extra={"tags": []})
    assert {reply, replace(reply, raw=None), UserMessage("hi", extra={"tags": []})}
    assert {Citation(raw={}), Usage(extra={}), Unknown({}), RunStart(tools=[["pay", "", {}]])}


def test_tool_call_rejects_arguments_of_another_type_than_text():
    with pytest.raises(TypeError, match="json.dumps"):
        ToolCall("1", "pay", {"amount": 5})


def test_messages_accept_none_and_lists_from_custom_models():
    assert AssistantMessage(None, None) == AssistantMessage("", ())
    call, source = ToolCall("1", "pay"), Citation("https://example.org")
    reply = AssistantMessage("", [call], citations=[source])
    assert {reply} == {AssistantMessage("", (call,), citations=(source,))}


def test_a_new_record_has_empty_defaults_and_is_immutable():
    result = ToolMessage("1", "pay", "ok")
    assert (result.is_error, result.ephemeral, result.origin) == (False, 0, "tool")
    assert SideRequest().tool_calls == 0
    assert (Citation().start, Citation().end) == (0, 0)
    for record in (result, SideRequest(), Result(), Usage()):
        with pytest.raises(AttributeError):
            record.extra = {"changed": True}


def test_the_message_of_a_stop_without_a_text_is_its_reason():
    assert str(Stop("limit:x")) == "limit:x"
    assert str(Stop("limit:x", "Too much.")) == "Too much."
    assert TaskComplete("It is 5.").message == "It is 5."


@pytest.mark.parametrize(
    "arguments", ["", " ", "null", "[]", '"x"', "5", '{"a":', "{'a': 1}", "[" * 10**5]
)
def test_arguments_are_kept_verbatim_and_parsed_only_if_they_are_an_object(arguments):
    call = ToolCall("1", "x", arguments)
    assert (call.arguments, call.parsed) == (arguments, None)
    assert ToolCall("1", "x", ' {"b": 1,\n"a":2} ').parsed == {"b": 1, "a": 2}


def test_usages_are_added_and_total_tokens_count_no_token_twice():
    total = Usage(50, 20, 30, 10, 5) + Usage(1, 2, 3, 4, 6)
    assert total == Usage(51, 22, 33, 14, 11)
    assert total.total_tokens == 73


@pytest.mark.parametrize(
    "wrong", [{}, {"url": "u", "data": b"", "media_type": "image/png"}, {"data": b"x"}]
)
def test_errors_for_invalid_parts_list_the_required_arguments(wrong):
    with pytest.raises(ValueError, match="url=.*data=.*media_type="):
        FilePart(**wrong)
    with pytest.raises(TypeError, match="content .*ImagePart"):
        UserMessage([{"type": "text"}])


@pytest.mark.parametrize("field", ["raw", "extra"])
def test_data_that_is_not_json_is_an_error(field):
    with pytest.raises(ValueError, match="object"):
        dump_record(AssistantMessage("x", **{field: {"x": object()}}))


@dataclass(frozen=True, slots=True)
class Progress(Mark):
    """A log entry of an application, with field names that the package also uses."""

    message: str = ""
    data: dict | None = None
    content: int = 0
    usage: list | None = None


def test_fields_of_a_custom_log_entry_are_restored_regardless_of_their_names():
    mark = Progress("half", {"type": "user"}, 3, [1])
    assert load_record(dump_record(mark)) == mark


@dataclass(frozen=True, slots=True)
class Received(Mark):
    """A log entry of an application that contains a message."""

    message: UserMessage
    data: bytes = b""


def test_a_custom_log_entry_may_contain_a_message_and_bytes():
    mark = Received(UserMessage(["hi", TextPart("ho")], "sent", "7"), b"\xff")
    assert load_record(dump_record(mark)) == mark


@dataclass(frozen=True, slots=True)
class Paid(Mark):
    """A log entry of an application that contains a usage."""

    used: Usage | None


def test_usage_in_a_custom_log_entry_keeps_counts_of_later_versions():
    line = b'{"type":"paid","at":1.0,"used":{"input_tokens":3,"video_tokens":5}}'
    assert load_record(line).used == Usage(3, extra={"video_tokens": 5})
    assert load_record(dump_record(Paid(None, at=1.0))) == Paid(None, at=1.0)


def test_keys_in_extra_never_become_fields():
    message = UserMessage("x", extra={"hidden": True, "origin": "nudge", "type": "assistant"})
    assert load_record(dump_record(message)) == message


@pytest.mark.parametrize(
    "name", ["ToolStart", "User", "UserMessage", "TextPart", "RunStart", "Ask"]
)
def test_a_log_entry_cannot_take_the_name_of_another_record_type(name):
    with pytest.raises(TypeError, match="rename"):
        type(name, (Mark,), {"__module__": "program", "__qualname__": name})
    assert type(load_record(dump_record(ToolStart("call_1")))) is ToolStart


def test_a_module_may_define_a_log_entry_again():
    for _ in range(2):  # a notebook runs a cell again

        @frozen
        class DefinedTwice(Mark):
            by: str = ""

    mark = DefinedTwice("Ada")
    assert load_record(dump_record(mark)) == mark


@dataclass(frozen=True)
class Point:
    x: int


@frozen
class Drawn(Mark):
    points: Sequence[Point] = ()
    named: dict[str, Point] | None = None
    newest: Point | None = None


def test_fields_of_a_log_entry_may_hold_dataclasses():
    drawn = Drawn([Point(1)], {"a": Point(2)}, Point(3))
    assert load_record(dump_record(drawn)) == drawn


@frozen
class Photo(UserMessage):
    place: str = ""


def test_a_message_class_of_ones_own_keeps_its_parts():
    photo = Photo(["here", ImagePart(data=b"\x89PNG", media_type="image/png")], place="Rome")
    assert load_record(dump_record(photo)) == photo
    later = Photo([Unknown({"type": "later", "x": 1})])
    assert load_record(dump_record(later)) == later


NO_RECORDS = ["tool_call", "citation", "mark", "call_entry", "__content", "__attachment"]


@pytest.mark.parametrize("tag", NO_RECORDS)
def test_a_record_with_the_name_of_a_nested_object_or_a_base_class_survives(tag):
    line = {"type": tag, "at": 1.0, "id": "1", "name": "x", "url": "u"}
    record = load_record(json.dumps(line))
    assert isinstance(record, Unknown)
    assert json.loads(dump_record(record)) == line


def test_a_log_entry_may_have_the_name_of_a_nested_object():
    cls = type("Citation", (Mark,), {"__module__": "program", "__qualname__": "Citation"})
    try:
        assert type(load_record(dump_record(cls()))) is cls
    finally:
        TAGS.pop("citation", None)


def test_the_error_for_a_record_type_of_the_same_name_contains_both_classes():
    own = UserMessage.__module__  # also in a bundle
    with pytest.raises(TypeError, match=rf"program\.User'.*{own}\.User.*rename User"):
        type("User", (UserMessage,), {"__module__": "program", "__qualname__": "User"})


# ---- values of the wrong type

SAMPLES = {
    AssistantMessage: {"content": "x"},
    Citation: {},
    RunEnd: {"stop_reason": "completed"},
    SideRequest: {},
    ToolCall: {"id": "1", "name": "add"},
    ToolMessage: {"tool_call_id": "1", "tool_name": "add", "content": "5"},
    ToolStart: {"call_id": "1"},
    Usage: {},
    UserMessage: {"content": "x"},
}
VALUES = [None, True, 3, 2.5, "x", b"x", ("x",), ["x"], [3], {}, {"a": 1}, Usage()]


@pytest.mark.parametrize("cls", SAMPLES)
def test_a_value_is_refused_where_the_record_is_made_or_it_is_read_as_it_was_written(cls):
    for field, value in product(fields(cls), VALUES):
        try:
            record = held_by_a_reply(cls(**{**SAMPLES[cls], field.name: value}))
            line = dump_record(record)
        except (TypeError, ValueError):
            continue
        assert to_dict(load_record(line)) == to_dict(record), (field.name, value)


def held_by_a_reply(made):
    """Return a record; objects that are written inside a reply get one."""
    if isinstance(made, ToolCall):
        return AssistantMessage(tool_calls=(made,))
    if isinstance(made, Citation):
        return AssistantMessage(citations=(made,))
    return AssistantMessage(usage=made) if isinstance(made, Usage) else made


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Usage(2.5), "Usage: input_tokens must be int, not 2.5"),
        (lambda: Usage(output_tokens=True), "output_tokens must be int"),
        (lambda: ToolCall(7, "add"), "ToolCall: id must be str"),
        (lambda: AssistantMessage(tool_calls=[{"id": "1"}]), "must be a ToolCall"),
        (lambda: AssistantMessage(tool_calls=ToolCall), "must be a ToolCall, not <class"),
        (lambda: AssistantMessage(citations=7), "must be a Citation, not 7"),
        (lambda: AssistantMessage(seconds="fast"), r"seconds must be float \| None"),
        (lambda: UserMessage("x", "me"), "origin must be Literal"),
    ],
)
def test_a_wrong_type_is_an_error_that_names_the_field_and_its_type(make, words):
    with pytest.raises(TypeError, match=words):
        make()


async def test_a_reply_with_a_fraction_of_a_token_ends_the_run_before_anything_is_recorded():
    ran = []

    @tool("Pay")
    async def pay() -> str:
        ran.append("pay")
        return "paid"

    def count_by_characters(messages, tools):
        return AssistantMessage(tool_calls=(ToolCall("1", "pay"),), usage=Usage(len("pay") / 2))

    agent = Agent(llm=ScriptedModel(count_by_characters), tools=[pay])
    with pytest.raises(TypeError, match="input_tokens must be int"):
        await agent.run("Pay.")
    assert ran == []
    assert [message.text for message in agent.messages] == ["Pay."]
