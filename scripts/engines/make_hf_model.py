"""Write tiny Llama models for vLLM's ``--load-format dummy``: a config and a byte-level tokenizer, no weights.

``small`` answers at once; ``slow`` needs about a minute for its longest prompt on one core, which is what a solo long
prefill looks like.
"""

import json
import sys
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())
SPECIALS = ["<unk>", "<s>", "</s>"]
SHAPES: dict[str, dict[str, int]] = {
    "small": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "max_position_embeddings": 32768},
    "slow": {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 8, "max_position_embeddings": 32000},
}


def tokenizer() -> Tokenizer:
    """One token per byte: no vocabulary to download, and a prompt's length is its length."""
    vocabulary = {token: number for number, token in enumerate(SPECIALS + BYTES)}
    built = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))  # noqa: S106
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens(SPECIALS)
    return built


def config(shape: dict[str, int]) -> dict[str, Any]:
    """A Llama of that shape, a token a byte; four heads, as vLLM's CPU attention wants 32 or more dimensions a head."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": len(SPECIALS) + len(BYTES),
        "bos_token_id": 1,
        "eos_token_id": 2,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "float32",
        **shape,
    }


def write(root: Path) -> None:
    """Write every model under ``root``; the same bytes each time."""
    for name, shape in SHAPES.items():
        home = root / name
        home.mkdir(parents=True, exist_ok=True)
        tokenizer().save(str(home / "tokenizer.json"))
        (home / "config.json").write_text(json.dumps(config(shape), indent=1), encoding="utf-8")
        (home / "tokenizer_config.json").write_text(
            json.dumps(
                {
                    "tokenizer_class": "PreTrainedTokenizerFast",
                    "unk_token": "<unk>",
                    "bos_token": "<s>",
                    "eos_token": "</s>",
                    "model_max_length": shape["max_position_embeddings"],
                    "chat_template": "{% for m in messages %}{{ m.content }}{% endfor %}",
                },
                indent=1,
            ),
            encoding="utf-8",
        )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
