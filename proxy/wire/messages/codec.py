"""The dialect of Anthropic's Messages API: POST /v1/messages, and POST /v1/messages/count_tokens."""

from proxy.wire.messages import answer, binding, question, request, system
from proxy.wire.routing import peek_model


class MessagesCodec:
    """Implements `proxy.wire.codec.Codec`, which documents each method."""

    name = "messages"
    transcript = "messages"

    def __init__(self, ending: str = "", *, is_count: bool = False) -> None:
        self.ending = f"/messages{ending}"
        self.path = f"/v1{self.ending}"
        self.is_count = is_count

    read = request.read_request
    clean = staticmethod(system.clean_request)
    drop_tools = staticmethod(request.drop_unused_tools)
    peek_model = staticmethod(peek_model)
    uncounted_bytes = staticmethod(request.uncounted_bytes)
    decode = staticmethod(request.decode_request)
    count_format = staticmethod(request.count_format_tokens)
    counts_all = staticmethod(request.counts_all)
    encode = staticmethod(request.encode_request)
    adapt = staticmethod(binding.bind_thinking)
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


MESSAGES = MessagesCodec()
COUNT_TOKENS = MessagesCodec("/count_tokens", is_count=True)
