"""The dialect of chat completions: POST /v1/chat/completions, and any path with that ending."""

from collections.abc import Iterable, Mapping

import orjson

from proxy.wire.chat import answer, binding, question, request
from proxy.wire.codec import Request
from proxy.wire.routing import peek_model


class ChatCodec:
    """Implements `proxy.wire.codec.Codec`, which documents each method."""

    name = "chat"
    transcript = "messages"
    ending = "/chat/completions"
    path = f"/v1{ending}"
    is_count = False

    read = request.read_request
    clean = staticmethod(request.clean_request)
    drop_tools = staticmethod(request.drop_unused_tools)
    peek_model = staticmethod(peek_model)
    uncounted_bytes = staticmethod(request.uncounted_bytes)
    decode = staticmethod(request.decode_request)
    count_format = staticmethod(request.count_format_tokens)
    counts_all = staticmethod(request.counts_all)
    encode = staticmethod(request.encode_request)
    adapt = staticmethod(binding.leave_out_thinking)
    help_cache = staticmethod(request.help_cache)

    tap = staticmethod(answer.make_tap)
    hold_first_event = staticmethod(answer.hold_first_event)
    read_refusal = staticmethod(answer.read_refusal)
    write_error = staticmethod(answer.write_error)
    write_event = staticmethod(answer.write_answer_event)

    ask = staticmethod(question.write_question)
    ask_behind = staticmethod(question.write_question_behind)
    read_completion = staticmethod(question.read_completion)
    list_parameters = staticmethod(question.list_parameters)
    find_refused = staticmethod(question.find_refused)


CHAT = ChatCodec()


def read_messages(messages: Iterable[Mapping[str, object]], **members: object) -> Request:
    """Make a request from messages in the form of OpenAI's API, oldest first.

    `members` are the other members of its body: `model`, `tools`, `max_tokens` and so on. Raises UndecodableError.
    """
    return CHAT.read(orjson.dumps({**members, "messages": list(messages)}))
