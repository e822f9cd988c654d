"""The dialect of OpenAI's Responses API: POST /v1/responses."""

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from trimtab.proxy.wire.codec import Codec, Request
from trimtab.proxy.wire.json.spans import Span, find_member
from trimtab.proxy.wire.parameters import CACHE_KEY, Question
from trimtab.proxy.wire.responses import answer, compaction, message, recall, request, units
from trimtab.proxy.wire.responses.request import Writer, encode_text
from trimtab.proxy.wire.transcript.elements import WriteElement
from trimtab.rules.conversation import Conversation, Message

STORE = "store"


class ResponsesCodec(Codec):
    name = "responses"
    transcript = "input"
    outside = "instructions"
    ending = "/responses"
    path = f"/v1{ending}"

    form = request.FORM
    fixed = attrgetter(*request.FIXED)
    counted_fixed = request.COUNTED_FIXED
    empty = request.NOTHING
    markers = frozenset({"cache_breakpoint"})
    find_units = staticmethod(units.find_units)
    describe = staticmethod(request.describe)
    decode_unit = staticmethod(message.decode_unit)
    list_text = staticmethod(request.list_text)
    list_outside = staticmethod(request.list_instructions)
    write_outside = staticmethod(request.write_instructions)
    look_at = staticmethod(request.look_at)
    read_tools_and_format = staticmethod(request.read_tools_and_format)
    knows_members = staticmethod(request.counts_all)
    list_tools = staticmethod(request.list_tools)
    recall_tool = recall.TOOL
    one_answer = recall.ONE_ANSWER
    sifter = recall.ResponsesSifter
    clean = staticmethod(request.clean_request)

    carries = True
    read_answer = staticmethod(answer.read_answer)
    is_end = staticmethod(answer.is_end)
    is_part_of_answer = staticmethod(answer.is_part_of_answer)
    is_greeting = staticmethod(answer.is_greeting)
    read_empty_answer = staticmethod(answer.read_empty_answer)
    write_failure = staticmethod(answer.write_failure)
    write_answer = staticmethod(answer.write_answer)
    join = staticmethod(answer.join)

    limits = refusable_limits = ("max_output_tokens",)
    refusable = (STORE, CACHE_KEY)
    taken_over = request.RENDERED | request.CACHED
    of_session = request.OF_SESSION
    choices = frozenset({"tool_choice"})
    prescribes_form = staticmethod(request.prescribes_form)
    read_thinking = staticmethod(request.read_thinking)
    provider_note = compaction.NOTE

    @staticmethod
    def encode_message(said: Message) -> bytes:
        return message.encode_message(said, {})

    def encode_transcript(
        self, request: Request, before: Conversation, after: Conversation
    ) -> tuple[tuple[bytes, ...], Span]:
        """A transcript that is a text stays one if that can hold it."""
        body, known = request.body, request.beginning
        if not request.raws or after.messages == before.messages:
            place = find_member(body, self.form.key) if known is None else Span(known.array.start, known.array.stop)
            return (body,), place or Span(len(body), len(body))
        return encode_text(request, after) or super().encode_transcript(request, before, after)

    def make_writer(self, _: Request, messages: Sequence[Message]) -> WriteElement:
        return Writer(messages)

    def keep_nothing(self, question: Question) -> dict[str, Any]:
        return {} if STORE in question.refused else {STORE: False}


RESPONSES = ResponsesCodec()
