#!/usr/bin/env python3
"""Fine-tune an exported language model by LoRA with PEFT, and save the merged model.

    python lora.py MODEL TRAIN TEST OUT [--updates N]

MODEL is a folder of transformers; TRAIN and TEST are texts with one sentence per line. The script
prints the perplexity of TEST before and after training, and with the merged model.
"""

import argparse
import math
import random
from pathlib import Path

import peft
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def batch_of(tokenizer, lines):
    """Tokens and labels; the labels of padding are -100, which the loss ignores."""
    batch = tokenizer(lines, return_tensors="pt", padding=True)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"].eq(0), -100)
    return {"input_ids": batch["input_ids"], "labels": labels}


@torch.no_grad()
def perplexity(model, tokenizer, lines):
    """The perplexity of all tokens except the first of each line, line by line."""
    total = count = 0
    for line in lines:
        batch = batch_of(tokenizer, [line])
        number = batch["labels"].numel() - 1
        total += model(**batch).loss.item() * number
        count += number
    return math.exp(total / count)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("MODEL", "TRAIN", "TEST", "OUT"):
        parser.add_argument(name.lower(), metavar=name)
    parser.add_argument("--updates", type=int, default=200, metavar="N", help="(200)")
    args = parser.parse_args()
    train, test = (
        Path(file).read_text(encoding="utf-8").splitlines() for file in (args.train, args.test)
    )
    tokenizer = AutoTokenizer.from_pretrained(args.model, padding_side="right")
    model = AutoModelForCausalLM.from_pretrained(args.model)
    print(f"before: perplexity {perplexity(model.eval(), tokenizer, test[:200]):.3f}")

    torch.manual_seed(1)
    config = peft.LoraConfig(
        task_type="CAUSAL_LM", r=16, lora_alpha=32, target_modules="all-linear"
    )
    model = peft.get_peft_model(model, config).train()
    trained = [p for p in model.parameters() if p.requires_grad]
    number, whole = sum(p.numel() for p in trained), sum(p.numel() for p in model.parameters())
    print(f"trained: {number:,} of {whole:,} parameters")
    optimizer, draw = torch.optim.AdamW(trained, lr=5e-3), random.Random(1)
    for _ in range(args.updates):
        loss = model(**batch_of(tokenizer, draw.sample(train, 32))).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"after: perplexity {perplexity(model.eval(), tokenizer, test[:200]):.3f}")

    merged = model.merge_and_unload()
    print(f"merged: perplexity {perplexity(merged, tokenizer, test[:200]):.3f}")
    for part in (merged, tokenizer):
        part.save_pretrained(args.out)


if __name__ == "__main__":
    main()
