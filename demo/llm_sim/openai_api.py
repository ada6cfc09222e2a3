"""Bodies of ``/v1/completions`` and ``/v1/chat/completions``: what is asked for, and the answers' JSON."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

_CHARACTERS_PER_TOKEN = 4
_COMPLETION_TOKENS = 16
_CHAT_TOKENS = 256
_CHAT_OVERHEAD = 8
TOKEN_TEXT = " tok"


class BadRequestError(ValueError):
    """The body cannot be served; vLLM answers 400 with such a text."""


@dataclass(frozen=True)
class Asked:
    """One request as the engine needs it, and how the client wants its answer."""

    prompt_tokens: int
    max_tokens: int
    finish_reason: str
    stream: bool
    include_usage: bool
    chat: bool
    model: str
    answer_id: str


def read(body: object, chat: bool, served_model: str, max_model_len: int) -> Asked:
    """Check a body; raises :class:`BadRequestError`, or ``LookupError`` for a model that is not served."""
    if not isinstance(body, dict):
        raise BadRequestError("the body must be a JSON object")
    model = body.get("model") or served_model
    if model != served_model:
        raise LookupError(f"The model `{model}` does not exist.")
    prompt_tokens = _chat_tokens(body.get("messages")) if chat else _prompt_tokens(body.get("prompt"))
    limit = body.get("max_completion_tokens") if chat else None
    limit = body.get("max_tokens") if limit is None else limit
    room = max_model_len - prompt_tokens
    if limit is None:
        limit, finish_reason = (
            min(_CHAT_TOKENS if chat else _COMPLETION_TOKENS, room),
            "stop" if chat else "length",
        )
    elif not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise BadRequestError(f"max_tokens must be at least 1, got {limit!r}.")
    else:
        finish_reason = "length"
    if limit > room or room < 1:
        raise BadRequestError(
            f"This model's maximum context length is {max_model_len} tokens. However, you requested "
            f"{limit} output tokens and your prompt contains {prompt_tokens} input tokens."
        )
    options = body.get("stream_options") or {}
    return Asked(
        prompt_tokens=prompt_tokens,
        max_tokens=limit,
        finish_reason=finish_reason,
        stream=bool(body.get("stream")),
        include_usage=isinstance(options, dict) and bool(options.get("include_usage")),
        chat=chat,
        model=served_model,
        answer_id=f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}",
    )


def whole_answer(asked: Asked, generated: int) -> dict[str, object]:
    """The answer to a request that does not stream."""
    text = TOKEN_TEXT * generated
    content: dict[str, object] = {"message": {"role": "assistant", "content": text}} if asked.chat else {"text": text}
    kind = "chat.completion" if asked.chat else "text_completion"
    return _envelope(asked, kind, [_choice(content, asked.finish_reason)]) | {"usage": _usage(asked, generated)}


def chunk(asked: Asked, finish_reason: str | None) -> bytes:
    """One server-sent event with one token."""
    content: dict[str, object] = {"delta": {"content": TOKEN_TEXT}} if asked.chat else {"text": TOKEN_TEXT}
    kind = "chat.completion.chunk" if asked.chat else "text_completion"
    return event(_envelope(asked, kind, [_choice(content, finish_reason)]))


def usage_chunk(asked: Asked, generated: int) -> bytes:
    """The event that ``stream_options.include_usage`` asks for."""
    kind = "chat.completion.chunk" if asked.chat else "text_completion"
    return event(_envelope(asked, kind, []) | {"usage": _usage(asked, generated)})


def event(value: Mapping[str, object]) -> bytes:
    """A server-sent event."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def error(message: str, kind: str, code: int) -> dict[str, object]:
    """vLLM's error body."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _envelope(asked: Asked, kind: str, choices: list[dict[str, object]]) -> dict[str, object]:
    return {
        "id": asked.answer_id,
        "object": kind,
        "created": int(time.time()),
        "model": asked.model,
        "choices": choices,
    }


def _choice(content: dict[str, object], finish_reason: str | None) -> dict[str, object]:
    return {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}


def _usage(asked: Asked, generated: int) -> dict[str, object]:
    return {
        "prompt_tokens": asked.prompt_tokens,
        "total_tokens": asked.prompt_tokens + generated,
        "completion_tokens": generated,
    }


def _text_tokens(text: str) -> int:
    return max(1, len(text) // _CHARACTERS_PER_TOKEN)


def _prompt_tokens(prompt: object) -> int:
    match prompt:
        case str() if prompt:
            return _text_tokens(prompt)
        case [first, *_] if isinstance(first, int) and isinstance(prompt, list):
            if not all(isinstance(token, int) for token in prompt):
                raise BadRequestError("a prompt of token ids must hold nothing but integers")
            return len(prompt)
        case [str() | list() as only]:
            return _prompt_tokens(only)
        case [_, _, *_]:
            raise BadRequestError("this simulated server takes one prompt per request")
        case _:
            raise BadRequestError("prompt must be a text or a list of token ids")


def _chat_tokens(messages: object) -> int:
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages must be a list with at least one message")
    tokens = 0
    for message in messages:
        content = message.get("content") if isinstance(message, dict) else None
        parts = content if isinstance(content, list) else [{"type": "text", "text": content or ""}]
        text = "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
        tokens += _CHAT_OVERHEAD + _text_tokens(text)
    return tokens
