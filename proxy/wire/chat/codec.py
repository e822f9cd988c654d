"""The dialect of chat completions: POST /v1/chat/completions, and any path with that ending."""

from collections.abc import Iterable, Mapping
from operator import attrgetter

import msgspec
import orjson

from trimtab.proxy.wire.chat import answer, message, recall, request
from trimtab.proxy.wire.chat.request import drop_thinking, is_bound
from trimtab.proxy.wire.codec import Codec, Request
from trimtab.proxy.wire.parameters import CACHE_KEY
from trimtab.rules.conversation import Conversation, Message


class ChatCodec(Codec):
    name = "chat"
    transcript = "messages"
    ending = "/chat/completions"
    path = f"/v1{ending}"

    form = request.FORM
    fixed = attrgetter(*request.FIXED)
    known_members = request.COUNTED | request.WITHOUT_TOKENS
    markers = frozenset({"cache_control", "cache_breakpoint"})
    describe = staticmethod(request.describe)
    decode_unit = staticmethod(message.decode_element)
    read_tools_and_format = staticmethod(message.read_tools_and_format)
    encode_message = staticmethod(message.encode_message)
    list_tools = staticmethod(request.list_tools)
    recall_tool = recall.TOOL
    one_answer = recall.ONE_ANSWER
    sifter = recall.ChatSifter
    list_called = staticmethod(request.list_called)
    adapt = staticmethod(request.leave_out_thinking)

    read_answer = staticmethod(answer.read_answer)
    is_end = staticmethod(answer.is_end)
    is_part_of_answer = staticmethod(answer.is_part_of_answer)
    read_empty_answer = staticmethod(answer.read_empty_answer)
    write_answer = staticmethod(answer.write_answer)
    join = staticmethod(answer.join)

    limits = refusable_limits = ("max_tokens", "max_completion_tokens")  # models that think accept only the second one
    refusable = (CACHE_KEY,)
    asks_for_usage = True
    taken_over = request.RENDERED | request.CACHED
    of_session = request.OF_SESSION
    choices = frozenset({"tool_choice", "function_call"})
    prescribes_form = staticmethod(request.prescribes_form)
    read_thinking = staticmethod(request.read_thinking)

    def write_behind(
        self,
        request: Request,
        prefix: Conversation,
        asked: tuple[Message, ...],
        members: dict[str, msgspec.Raw],
        *,
        is_apart: bool,
    ) -> Iterable[bytes]:
        elements = super().write_behind(request, prefix, asked, members, is_apart=is_apart)
        return map(drop_thinking, elements) if request.breaks_past and is_bound(request, prefix) else elements


CHAT = ChatCodec()


def read_messages(messages: Iterable[Mapping[str, object]], **members: object) -> Request:
    """Make a request from messages in the form of OpenAI's API, oldest first.

    `members` are the other members of its body: `model`, `tools`, `max_tokens` and so on. Raises UndecodableError.
    """
    return CHAT.read(orjson.dumps({**members, "messages": list(messages)}))
