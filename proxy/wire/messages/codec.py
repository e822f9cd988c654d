"""The dialect of Anthropic's Messages API: POST /v1/messages, and POST /v1/messages/count_tokens."""

from trimtab.proxy.wire.dialect import Dialect
from trimtab.proxy.wire.messages import answer, binding, cost, message, question, request, system


class MessagesCodec(Dialect):
    """The tables and functions of this dialect."""

    name = "messages"
    transcript = "messages"

    def __init__(self, ending: str = "", *, is_count: bool = False) -> None:
        self.ending = f"/messages{ending}"
        self.path = f"/v1{self.ending}"
        self.is_count = is_count

    form = request.FORM
    counted_fixed = request.COUNTED_FIXED
    decode_unit = staticmethod(message.decode_element)
    list_outside = staticmethod(request.list_system)
    decode_outside = staticmethod(request.decode_marked_system)
    look_at = staticmethod(request.look_at)
    read_surroundings = staticmethod(cost.read_surroundings)
    knows_members = staticmethod(request.knows_members)
    list_tools = staticmethod(request.list_tools)

    read = request.read_request
    clean = staticmethod(system.clean_request)
    encode = staticmethod(request.encode_request)
    adapt = staticmethod(binding.bind_thinking)
    help_cache = staticmethod(request.help_cache)

    tap = staticmethod(answer.make_tap)
    hold_first_event = staticmethod(answer.hold_first_event)
    read_refusal = staticmethod(answer.read_refusal)
    write_error = staticmethod(answer.write_error)
    write_event = staticmethod(answer.write_answer_event)

    limits = (question.LIMIT,)
    refusable_limits = ()  # the limit is required
    ask = staticmethod(question.write_question)
    ask_behind = staticmethod(question.write_question_behind)
    read_completion = staticmethod(question.read_completion)


MESSAGES = MessagesCodec()
COUNT_TOKENS = MessagesCodec("/count_tokens", is_count=True)
