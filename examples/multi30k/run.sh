#!/usr/bin/env bash
# Multi30k English-German: one architecture from raw text to BLEU, small enough for a CPU.
#
#   run.sh DATA OUT ARCH [options] [-- flags for fairseq-train]
#
# DATA holds {train,val,test_2016_flickr}.{en,de}; if the folder does not exist, they are downloaded.
# ARCH is any architecture for translation, including fairseq's; all get the same size, data order and
# budget. Results go to OUT/NAME. Several architectures can share OUT, even at the same time. The work
# is done by ../translation/run.sh; these are its settings.
#
#   --bpe-operations N    merges of the joint BPE (6000)
#   --checksums FILE      for a download: sha256sum-style list that overrides all others
#   options of ../translation/run.sh --name --seed --epochs --average --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"

DATA=$(absolute "$DATA")
if [[ ! -e $DATA ]]; then
    log "$DATA: no such folder; downloading"
    pass DOWNLOAD --checksums --dry-run
    "$RECIPE/download.sh" "$DATA" --keep "${DOWNLOAD[@]}"
fi
for text in "$DATA"/{train,val,test_2016_flickr}.{en,de}; do
    need "$text" "$text: no such file; $RECIPE/download.sh fetches the data into a new folder"
done
((DRY_RUN)) || (cd "$DATA" && sha256sum --status --check "$RECIPE/texts.sha256") ||
    log "$DATA: not the texts used for the table in README.md; scores will differ"

pass OPTIONS --name --seed --average --user-dir --dry-run
exec "$RECIPE/../translation/run.sh" "$DATA" "$OUT" "$ARCH" --source-lang en --target-lang de \
    --valid val --test test_2016_flickr --subwords subword-nmt --bpe-operations "$BPE_OPERATIONS" \
    --no-cleaning --epochs "$EPOCHS" --tokens-per-batch 2048 --tokens-per-gpu 2048 --fp32 \
    --max-tokens 4000 --about "Multi30k English-German, $EPOCHS epochs." "${OPTIONS[@]}" -- \
    --encoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
    --encoder-attention-heads 4 \
    --decoder-layers 3 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 \
    --decoder-attention-heads 4 \
    --dropout 0.2 --clip-norm 1.0 --lr 3e-3 --warmup-updates 1000 --num-workers 0 "${EXTRA[@]}"
