"""LangChain's side of the bench: a chat model that writes notes, and the conversion of messages.

Runs inside LangChain's environment.
"""

from typing import Any

from langchain_core.language_models.base import LangSmithParams
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.messages.utils import convert_to_messages, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from pydantic import Field

from bench.peers.note import write_note

PROVIDER = "openai"


class NoteModel(BaseChatModel):
    """A model that answers with a note of the prompt, and remembers what it was asked."""

    note_tokens: int
    calls: list[tuple[str, str]] = Field(default_factory=list)

    def take_calls(self) -> list[tuple[str, str]]:
        """Prompts and answers since the last call."""
        calls, self.calls = self.calls, []
        return calls

    @property
    def _llm_type(self) -> str:
        return PROVIDER

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        # With this name LangChain knows that the usage in the answers is this model's, and uses it.
        return LangSmithParams(**{**super()._get_ls_params(stop, **kwargs), "ls_provider": PROVIDER})

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        prompt = "\n".join(message.text for message in messages)
        note = write_note(prompt, self.note_tokens)
        self.calls.append((prompt, note))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(note))])


def read_message(index: int, wire: dict[str, Any], prompt_tokens: int, tokens: int) -> BaseMessage:
    """A message of the client; an assistant's message carries the usage that the upstream reported with it."""
    message = convert_to_messages([wire])[0]
    message.id = str(index)
    if isinstance(message, AIMessage):
        total = prompt_tokens + tokens
        message.usage_metadata = {"input_tokens": prompt_tokens, "output_tokens": tokens, "total_tokens": total}
        message.response_metadata = {"model_provider": PROVIDER}
    return message


def write_message(message: BaseMessage) -> int | dict[str, Any]:
    """The index of a message if it came from the client, else the message."""
    if message.id is not None and message.id.isdigit():
        return int(message.id)
    written: dict[str, Any] = convert_to_openai_messages(message)
    return written
