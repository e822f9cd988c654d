"""The dialect of chat completions: POST /v1/chat/completions."""

from proxy.wire.chat import answer, question, request
from proxy.wire.codec import Request
from proxy.wire.sse import FirstEvent
from proxy.wire.tap import Tap


class ChatCodec:
    """Keeps the protocol of `proxy.wire.codec.Codec`, which says what each method does."""

    name = "chat"
    path = "/v1/chat/completions"
    paths = frozenset({path, "/chat/completions"})

    peek_model = staticmethod(request.peek_model)
    uncounted_bytes = staticmethod(request.uncounted_bytes)
    decode = staticmethod(request.decode_request)
    count_format = staticmethod(request.count_format_tokens)
    encode = staticmethod(request.encode_request)

    read_refusal = staticmethod(answer.read_refusal)
    write_error = staticmethod(answer.write_error)
    write_event = staticmethod(answer.write_answer_event)

    ask = staticmethod(question.write_question)
    ask_behind = staticmethod(question.write_question_behind)
    read_completion = staticmethod(question.read_completion)
    read_refused_parameter = staticmethod(question.read_refused_parameter)

    def read(self, body: bytes, *, max_chars: int | None = None) -> Request:
        """Split a body into its messages without decoding them. Raises UndecodableError and LargeWorkError."""
        return request.read_request(self, body, max_chars)

    def tap(self, *, is_stream: bool) -> Tap:
        """Reads a copy of an answer for its usage and its text."""
        return Tap(answer.read_answer, is_stream=is_stream)

    def hold_first_event(self, *, keeps_all: bool) -> FirstEvent:
        """Holds a stream back until its first event is whole, or is surely part of an answer."""
        return FirstEvent(answer.is_part_of_answer, keeps_all=keeps_all)


CHAT = ChatCodec()
