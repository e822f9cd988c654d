"""The dialect of chat completions: POST /v1/chat/completions, and any path with that ending."""

from collections.abc import Iterable, Mapping

import orjson

from trimtab.proxy.wire.chat import answer, cost, question, request
from trimtab.proxy.wire.codec import Request
from trimtab.proxy.wire.dialect import Dialect


class ChatCodec(Dialect):
    """The tables and functions of this dialect."""

    name = "chat"
    transcript = "messages"
    ending = "/chat/completions"
    path = f"/v1{ending}"

    form = request.FORM
    known_members = request.COUNTED | request.WITHOUT_TOKENS
    decode_unit = staticmethod(request.decode_element)
    read_surroundings = staticmethod(cost.read_surroundings)
    list_tools = staticmethod(request.list_tools)
    list_called = staticmethod(request.list_called)

    read = request.read_request
    encode = staticmethod(request.encode_request)
    adapt = staticmethod(request.leave_out_thinking)
    help_cache = staticmethod(request.help_cache)

    tap = staticmethod(answer.make_tap)
    hold_first_event = staticmethod(answer.hold_first_event)
    read_refusal = staticmethod(answer.read_refusal)
    write_error = staticmethod(answer.write_error)
    write_event = staticmethod(answer.write_answer_event)

    limits = refusable_limits = question.LIMITS
    refusable = (question.CACHE_KEY,)
    ask = staticmethod(question.write_question)
    ask_behind = staticmethod(question.write_question_behind)
    read_completion = staticmethod(question.read_completion)


CHAT = ChatCodec()


def read_messages(messages: Iterable[Mapping[str, object]], **members: object) -> Request:
    """Make a request from messages in the form of OpenAI's API, oldest first.

    `members` are the other members of its body: `model`, `tools`, `max_tokens` and so on. Raises UndecodableError.
    """
    return CHAT.read(orjson.dumps({**members, "messages": list(messages)}))
