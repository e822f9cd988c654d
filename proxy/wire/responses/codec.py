"""The dialect of OpenAI's Responses API: POST /v1/responses."""

from trimtab.proxy.wire.dialect import Dialect
from trimtab.proxy.wire.responses import answer, cost, message, question, request, units


class ResponsesCodec(Dialect):
    """The tables and functions of this dialect."""

    name = "responses"
    transcript = "input"
    ending = "/responses"
    path = f"/v1{ending}"

    form = request.FORM
    find_units = staticmethod(units.find_units)
    counted_fixed = request.COUNTED_FIXED
    decode_unit = staticmethod(message.decode_unit)
    list_outside = staticmethod(request.list_instructions)
    look_at = staticmethod(request.look_at)
    read_surroundings = staticmethod(cost.read_surroundings)
    knows_members = staticmethod(cost.counts_all)
    list_tools = staticmethod(request.list_tools)

    read = request.read_request
    clean = staticmethod(request.clean_request)
    encode = staticmethod(request.encode_request)
    help_cache = staticmethod(request.help_cache)

    tap = staticmethod(answer.make_tap)
    hold_first_event = staticmethod(answer.hold_first_event)
    read_refusal = staticmethod(answer.read_refusal)
    write_error = staticmethod(answer.write_error)
    write_event = staticmethod(answer.write_answer_event)

    limits = refusable_limits = question.LIMITS
    refusable = (question.STORE, question.CACHE_KEY)
    ask = staticmethod(question.write_question)
    ask_behind = staticmethod(question.write_question_behind)
    read_completion = staticmethod(question.read_completion)


RESPONSES = ResponsesCodec()
