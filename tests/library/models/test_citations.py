"""Citations in complete and streamed replies of each provider."""

import json

from agentloop.common.records import dump_record, load_record
from agentloop.messages import AssistantMessage, Citation
from tests.doubles.anthropic_double import AnthropicDouble
from tests.doubles.openai_double import Reply
from tests.doubles.wires import ANTHROPIC, GOOGLE, OPENAI, RESPONSES

from .helpers import HI, ask

TEXT = "Zürich is large. Bern is small."
BERN = len("Zürich is large. ")


def sources_of(reply):
    """Return each citation as (URL, title, cited text)."""
    return [
        (citation.url, citation.title, reply.text[citation.start : citation.end])
        for citation in reply.citations
    ]


def whole(wire, data):
    """Read a complete reply."""
    return wire.model("http://x").read(json.loads(json.dumps(data)))


def read(wire, *events):
    """Read a streamed reply from its events."""
    llm = wire.model("http://x")
    parts = llm.chunks()
    for event in events:
        parts.add(json.loads(json.dumps(event)))
    return llm.read(parts.reply())


# ---- Chat Completions
# Source: https://platform.openai.com/docs/guides/tools-web-search (url_citation)


def url_citation(url, start, end):
    about = {"url": url, "title": f"of {url}", "start_index": start, "end_index": end}
    return {"type": "url_citation", "url_citation": about}


SOURCES = [url_citation("https://a", 0, 16), url_citation("https://b", BERN, len(TEXT))]
EXPECTED = [
    ("https://a", "of https://a", "Zürich is large."),
    ("https://b", "of https://b", "Bern is small."),
]


def test_url_citations_of_chat_completions_are_read():
    message = {"role": "assistant", "content": TEXT, "annotations": SOURCES}
    reply = whole(OPENAI, {"choices": [{"message": message, "finish_reason": "stop"}]})
    assert sources_of(reply) == EXPECTED
    assert reply.citations[0].raw == SOURCES[0]


def test_repeated_citations_in_a_stream_are_merged():
    # OpenRouter sends citations as they are found, and repeats all of them at the end
    # Source: https://openrouter.ai/docs/guides/features/plugins/web-search
    deltas = [{"content": TEXT}, {"annotations": SOURCES[:1]}, {"annotations": SOURCES}]
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    assert sources_of(read(OPENAI, *chunks, end)) == EXPECTED


def test_a_citation_may_lack_a_position_or_a_title():
    about = {"type": "url_citation", "url_citation": {"url": "https://a", "start_index": None}}
    odd = {"type": "url_citation", "title": {"en": "A"}}
    message = {"content": TEXT, "annotations": [about, None, odd]}
    reply = whole(OPENAI, {"choices": [{"message": message}]})
    assert sources_of(reply) == [("https://a", "", ""), ("", '{"en": "A"}', "")]
    assert hash(reply)


def test_file_annotations_of_openrouter_are_not_citations():
    # Source: https://openrouter.ai/docs/guides/overview/multimodal/pdfs (annotations)
    file = {"hash": "x", "name": "a.pdf", "content": [{"type": "text", "text": "long"}]}
    cited = {"type": "url_citation", "url_citation": {"url": "https://a"}}
    message = {"content": TEXT, "annotations": [{"type": "file", "file": file}, cited]}
    reply = whole(OPENAI, {"choices": [{"message": message}]})
    assert sources_of(reply) == [("https://a", "", "")]


# ---- Responses
# Source: https://platform.openai.com/docs/api-reference/responses/object (annotations)


def test_positions_in_later_messages_of_responses_are_relative_to_the_complete_text(streaming):
    def output_message(text, *annotations):
        part = {"type": "output_text", "text": text, "annotations": annotations}
        return {"type": "message", "role": "assistant", "content": [part]}

    url = {"type": "url_citation", "url": "https://b", "title": "B"}
    file = {"type": "file_citation", "file_id": "file-1", "filename": "a.pdf", "index": 3}
    thought = {"type": "reasoning", "summary": [], "content": [{"text": "hm, hm"}]}
    second = output_message("Bern is small.", url | {"start_index": 0, "end_index": 4}, file)
    reply = {
        "status": "completed",
        "output": [thought, output_message("Zürich is large. "), second],
    }
    if streaming:
        message = read(RESPONSES, {"type": "response.completed", "response": reply})
    else:
        message = whole(RESPONSES, reply)
    assert message.text == TEXT
    assert sources_of(message) == [("https://b", "B", "Bern"), ("", "a.pdf", "")]
    assert message.citations[1].raw["file_id"] == "file-1"


# ---- Anthropic
# Source: https://platform.claude.com/docs/en/build-with-claude/citations

PAGE = {
    "type": "page_location",
    "cited_text": "Zürich: 440,000",
    "document_index": 0,
    "document_title": "Cities",
    "start_page_number": 3,
    "end_page_number": 4,
}
WEB_RESULT = {
    "type": "web_search_result_location",
    "url": "https://b",
    "title": "B",
    "encrypted_index": "e",
    "cited_text": "Bern is small",
}
RESULT = {"type": "search_result_location", "source": "https://c", "title": "C", "cited_text": ""}


async def test_a_citation_of_anthropic_covers_its_text_block(streaming):
    blocks = [
        {"type": "text", "text": "Zürich is large.", "citations": [PAGE]},
        {"type": "text", "text": " "},
        {"type": "text", "text": "Bern is small.", "citations": [WEB_RESULT, RESULT]},
    ]
    async with AnthropicDouble([Reply(blocks=blocks), "ok"]) as server:
        llm = ANTHROPIC.model(server, cache=False)
        reply = await ask(llm, streaming)
        await ask(llm, messages=[*HI, reply, *HI])
    assert sources_of(reply) == [
        ("", "Cities", "Zürich is large."),
        ("https://b", "B", "Bern is small."),
        ("https://c", "C", "Bern is small."),
    ]
    assert reply.citations[0].raw["start_page_number"] == 3
    back = [blocks[0], blocks[2]]  # unchanged, except for blank text, which the API rejects
    assert server.requests[1]["messages"][1]["content"] == back


# ---- Google
# Source: https://ai.google.dev/gemini-api/docs/google-search (groundingMetadata)

CHUNKS = [
    {"web": {"uri": "https://a", "title": "a"}},
    {"retrievedContext": {"uri": "gs://b", "title": "b", "text": "Bern ..."}},
]
IMAGE = {"image": {"sourceUri": "https://c", "imageUri": "https://c/x.png", "title": "c"}}


def grounding_metadata(*supports, chunks=CHUNKS):
    return {"groundingChunks": chunks, "groundingSupports": supports}


def support(text, start, *chunks):
    """Return the chunks that support a text. Positions count bytes; a start of 0 is omitted."""
    segment = {"text": text, "endIndex": start + len(text.encode())}
    if start:
        segment["startIndex"] = start
    return {"segment": segment, "groundingChunkIndices": [*chunks]}


def google(text, grounding, *, streaming):
    """Read a Gemini reply; in a stream, its sources arrive before the last chunk."""
    content = {"role": "model", "parts": [{"text": "I search.", "thought": True}, {"text": text}]}
    candidate = {"content": content, "groundingMetadata": grounding}
    if not streaming:
        candidate["finishReason"] = "STOP"
        return whole(GOOGLE, {"candidates": [candidate]})
    # Source: https://github.com/vercel/ai/pull/13123
    end = {"content": {"parts": [{"text": ""}]}, "finishReason": "STOP"}
    return read(GOOGLE, {"candidates": [candidate]}, {"candidates": [end]})


def test_positions_of_google_are_byte_offsets(streaming):
    start = len("Zürich is large. ".encode())
    grounding = grounding_metadata(
        support("Zürich is large.", 0, 0), support("Bern is small.", start, 0, 1)
    )
    reply = google(TEXT, grounding, streaming=streaming)
    assert sources_of(reply) == [
        ("https://a", "a", "Zürich is large."),
        ("https://a", "a", "Bern is small."),
        ("gs://b", "b", "Bern is small."),
    ]
    assert reply.citations[2].raw == CHUNKS[1]


def test_the_position_selects_one_of_several_equal_texts():
    reply = google("yes, or: yes", grounding_metadata(support("yes", 9, 0)), streaming=False)
    assert (reply.citations[0].start, reply.citations[0].end) == (9, 12)
    # positions may refer to an unspecified part, in which case the text occurs later
    # Source: https://github.com/googleapis/python-genai/issues/961
    reply = google("or: yes", grounding_metadata(support("yes", 0, 0)), streaming=False)
    assert sources_of(reply) == [("https://a", "a", "yes")]


def test_google_sources_without_supports_are_read_and_invalid_indices_are_ignored():
    reply = google(TEXT, grounding_metadata(), streaming=False)
    assert sources_of(reply) == [("https://a", "a", ""), ("gs://b", "b", "")]
    assert google(TEXT, grounding_metadata(support(TEXT, 0, 7)), streaming=False).citations == ()
    assert google(TEXT, {}, streaming=False).citations == ()
    reply = google(
        TEXT, grounding_metadata(chunks=[IMAGE, {"maps": {"uri": "d"}}]), streaming=False
    )
    assert sources_of(reply) == [("https://c", "c", ""), ("d", "", "")]


# ---- all providers


def test_citations_are_saved_and_loaded_with_their_message():
    # half of a surrogate pair, which JSON can represent
    half = {"url": "https://a", "cited_text": "\ud83d"}
    message = {"content": TEXT, "annotations": [half | {"start_index": 0, "end_index": 6}]}
    reply = whole(OPENAI, {"choices": [{"message": message}]})
    raw = message["annotations"][0] | {"cited_text": "\ufffd"}
    assert reply.citations == (Citation("https://a", start=0, end=6, raw=raw),)
    line = dump_record(reply)
    assert load_record(line) == reply
    assert load_record(dump_record(AssistantMessage("x"))).citations == ()


async def test_a_reply_without_sources_has_no_citations(wire, streaming):
    async with wire.double(["hello"]) as server:
        assert (await ask(wire.model(server), streaming)).citations == ()


def test_recitations_and_fetched_pages_of_google_are_citations():
    # Source: https://ai.google.dev/api/generate-content#CitationMetadata
    start = len("Zürich is large. ".encode())
    recited = {"startIndex": start, "endIndex": start + 14, "uri": "https://b", "title": "B"}
    fetched = {"retrievedUrl": "https://a", "urlRetrievalStatus": "URL_RETRIEVAL_STATUS_SUCCESS"}
    candidate = {
        "content": {"parts": [{"text": TEXT}]},
        "finishReason": "STOP",
        "citationMetadata": {"citationSources": [recited]},
        "urlContextMetadata": {"urlMetadata": [fetched]},
    }
    reply = whole(GOOGLE, {"candidates": [candidate]})
    assert sources_of(reply) == [("https://b", "B", "Bern is small."), ("https://a", "", "")]


def test_perplexity_sources_are_read_from_complete_and_streamed_replies():
    # Source: https://docs.perplexity.ai/api-reference/chat-completions-post
    message = {"role": "assistant", "content": TEXT}
    results = [{"title": "A", "url": "https://a", "date": None}]
    for about, title in (({"citations": ["https://a"]}, ""), ({"search_results": results}, "A")):
        choice = {"message": message, "finish_reason": "stop"}
        assert sources_of(whole(OPENAI, {"choices": [choice], **about})) == [
            ("https://a", title, "")
        ]
        choice = {"delta": message, "finish_reason": "stop"}
        assert sources_of(read(OPENAI, {"choices": [choice], **about})) == [
            ("https://a", title, "")
        ]
