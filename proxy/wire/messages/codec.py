"""The dialect of Anthropic's Messages API: POST /v1/messages, and POST /v1/messages/count_tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

import msgspec

from trimtab.proxy.wire.codec import Codec, Request
from trimtab.proxy.wire.json import Span
from trimtab.proxy.wire.messages import answer, blocks, compaction, message, recall, request
from trimtab.proxy.wire.messages.message import USER_SIDE, shares_element, write_element
from trimtab.proxy.wire.messages.request import bind_question
from trimtab.proxy.wire.transcript.body import take_off_outside
from trimtab.proxy.wire.transcript.elements import WriteElement
from trimtab.rules.conversation import Conversation, Message


class MessagesCodec(Codec):
    name = "messages"
    transcript = "messages"
    outside = "system"

    def __init__(self, ending: str = "", *, is_count: bool = False) -> None:
        self.ending = f"/messages{ending}"
        self.path = f"/v1{self.ending}"
        self.is_count = is_count

    form = request.FORM
    fixed = attrgetter(*request.FIXED)
    counted_fixed = request.COUNTED_FIXED
    shares = staticmethod(shares_element)
    describe = staticmethod(request.describe)
    decode_unit = staticmethod(message.decode_element)
    list_outside = staticmethod(request.list_system)
    decode_outside = staticmethod(request.decode_marked_system)
    write_outside = staticmethod(request.write_system)
    look_at = staticmethod(request.look_at)
    read_tools_and_format = staticmethod(message.read_tools_and_format)
    knows_members = staticmethod(request.knows_members)
    list_tools = staticmethod(request.list_tools)
    recall_tool = recall.TOOL
    sifter = recall.MessagesSifter
    clean = staticmethod(request.clean_request)
    adapt = staticmethod(request.bind_thinking)
    help_cache = staticmethod(blocks.help_cache)

    read_answer = staticmethod(answer.read_answer)
    is_end = staticmethod(answer.is_end)
    is_part_of_answer = staticmethod(answer.is_part_of_answer)
    is_greeting = staticmethod(answer.is_greeting)
    is_ping = staticmethod(answer.is_ping)
    read_empty_answer = staticmethod(answer.read_empty_answer)
    error_type = "api_error"
    describe_error = staticmethod(answer.describe_error)
    write_error_body = staticmethod(answer.write_error_body)
    write_failure = staticmethod(answer.write_failure)
    write_answer = staticmethod(answer.write_answer)
    join = staticmethod(answer.join)

    limits = ("max_tokens",)
    refusable_limits = ()  # the limit is required
    taken_over = request.TAKEN_OVER
    of_session = request.OF_SESSION
    choices = frozenset({"tool_choice"})
    prescribes_form = staticmethod(request.prescribes_form)
    read_thinking = staticmethod(request.read_thinking)
    provider_note = compaction.NOTE

    @staticmethod
    def encode_message(said: Message) -> bytes:
        return write_element((), ((said, None),))

    def encode_transcript(
        self, request: Request, before: Conversation, after: Conversation
    ) -> tuple[tuple[bytes, ...], Span]:
        return super().encode_transcript(request, before, blocks.place_marker(request, after))

    def make_writer(self, request: Request, _: Sequence[Message]) -> WriteElement:
        return partial(write_element, request.raws)

    def write_behind(
        self,
        request: Request,
        prefix: Conversation,
        asked: tuple[Message, ...],
        members: dict[str, msgspec.Raw],
        **_: bool,
    ) -> Iterable[bytes]:
        marked = blocks.place_marker(request, take_off_outside(prefix))
        if marked.messages and marked.messages[-1].speaker in USER_SIDE:
            marked = blocks.mark_end(blocks.find_markers(request), marked, len(marked.messages) - 1)
        bound = replace(request, raws=tuple(bind_question(request, prefix, members)))
        return super().write_behind(bound, marked, asked, members, is_apart=True)


MESSAGES = MessagesCodec()
COUNT_TOKENS = MessagesCodec("/count_tokens", is_count=True)
