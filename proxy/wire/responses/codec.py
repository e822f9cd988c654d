"""The dialect of OpenAI's Responses API: POST /v1/responses."""

from proxy.wire.codec import leave_body
from proxy.wire.responses import answer, clean, errors, question, request
from proxy.wire.routing import peek_model


class ResponsesCodec:
    """Implements `proxy.wire.codec.Codec`, which documents each method."""

    name = "responses"
    transcript = "input"
    path = "/v1/responses"
    ending = "/responses"
    is_count = False

    read = request.read_request
    clean = staticmethod(clean.clean_request)
    drop_tools = staticmethod(request.drop_unused_tools)
    peek_model = staticmethod(peek_model)
    uncounted_bytes = staticmethod(request.uncounted_bytes)
    decode = staticmethod(request.decode_request)
    count_format = staticmethod(request.count_format_tokens)
    counts_all = staticmethod(request.counts_all)
    encode = staticmethod(request.encode_request)
    adapt = staticmethod(leave_body)
    help_cache = staticmethod(request.help_cache)

    tap = staticmethod(answer.make_tap)
    hold_first_event = staticmethod(answer.hold_first_event)
    read_refusal = staticmethod(answer.read_refusal)
    write_error = staticmethod(errors.write_error)
    write_event = staticmethod(errors.write_answer_event)

    ask = staticmethod(question.write_question)
    ask_behind = staticmethod(question.write_question_behind)
    read_completion = staticmethod(question.read_completion)
    list_parameters = staticmethod(question.list_parameters)
    find_refused = staticmethod(question.find_refused)


RESPONSES = ResponsesCodec()
