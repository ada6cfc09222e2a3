"""Write random Llama models in GGUF for llama-server, with a byte-level vocabulary.

``small`` answers at once; ``slow`` takes a second or more for a batch of its prompt on one core.
"""

import sys
from pathlib import Path

import gguf
import numpy as np

SHAPES = {
    "small": {"width": 64, "inner": 128, "layers": 2, "heads": 4, "context": 32768},
    "slow": {"width": 512, "inner": 1536, "layers": 8, "heads": 8, "context": 32768},
}
VOCABULARY = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]


def write(path: Path, shape: dict[str, int]) -> None:
    """Write one model with weights drawn from a fixed seed, float32."""
    width, inner, heads = shape["width"], shape["inner"], shape["heads"]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name(f"random-{path.stem}")
    writer.add_context_length(shape["context"])
    writer.add_embedding_length(width)
    writer.add_block_count(shape["layers"])
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_rope_dimension_count(width // heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_vocab_size(len(VOCABULARY))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)

    writer.add_tokenizer_model("llama")
    writer.add_token_list(VOCABULARY)
    writer.add_token_scores([0.0] * len(VOCABULARY))
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL, *[gguf.TokenType.BYTE] * 256]
    writer.add_token_types(kinds)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)

    random = np.random.default_rng(0)

    def add(name: str, *size: int) -> None:
        writer.add_tensor(name, (random.standard_normal(size) * 0.02).astype(np.float32))

    def add_norm(name: str) -> None:
        writer.add_tensor(name, np.ones(width, dtype=np.float32))

    add("token_embd.weight", len(VOCABULARY), width)
    add("output.weight", len(VOCABULARY), width)
    add_norm("output_norm.weight")
    for layer in range(shape["layers"]):
        block = f"blk.{layer}"
        add_norm(f"{block}.attn_norm.weight")
        add_norm(f"{block}.ffn_norm.weight")
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"{block}.{part}.weight", width, width)
        add(f"{block}.ffn_gate.weight", inner, width)
        add(f"{block}.ffn_up.weight", inner, width)
        add(f"{block}.ffn_down.weight", width, inner)

    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(home: Path) -> None:
    """Write each model that is not there yet."""
    home.mkdir(parents=True, exist_ok=True)
    for name, shape in SHAPES.items():
        target = home / f"{name}.gguf"
        if not target.exists():
            unfinished = home / f"{name}.part"
            write(unfinished, shape)
            unfinished.rename(target)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
