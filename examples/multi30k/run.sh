#!/usr/bin/env bash
# Multi30k English-German: one architecture from raw text to BLEU, small enough for a CPU.
#
#   run.sh DATA_DIR OUT_DIR ARCH [options] [-- flags for fairseq-train]
#
# DATA_DIR holds {train,val,test_2016_flickr}.{en,de}; if the folder does not exist, they are
# downloaded. ARCH is any architecture for translation, including fairseq's; all get
# the same size, data order and budget. Results go to OUT_DIR/NAME. If interrupted, run it
# again to resume. Several architectures can share OUT_DIR, even at the same time. The work
# is done by ../translation/run.sh; these are its settings.
#
#   --name NAME           folder of this run (ARCH-seedSEED)
#   --seed N              seed of fairseq-train (1)
#   --epochs N            passes over the training data (12)
#   --average N           number of last epoch checkpoints to average (5)
#   --bpe-operations N    merges of the joint BPE (6000)
#   --checksums FILE      for a download: sha256sum-style list that overrides all others
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

DATA="" OUT="" ARCH="" CHECKSUMS="" EPOCHS=12 OPERATIONS=6000 OPTIONS=()
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1 OPTIONS+=("$1"); shift ;;
        --checksums) CHECKSUMS=$(value "$@"); shift 2 ;;
        --epochs) EPOCHS=$(value "$@"); shift 2 ;;
        --bpe-operations) OPERATIONS=$(value "$@"); shift 2 ;;
        --name | --seed | --average | --user-dir) OPTIONS+=("$1" "$(value "$@")"); shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" DATA OUT ARCH; shift ;;
    esac
done
[[ -n $ARCH ]] || die "give the data folder, the output folder and the architecture; see --help"

if [[ ! -e $DATA ]]; then
    hold "$OUT/data" wait
    if [[ ! -e $DATA ]]; then
        log "$DATA: no such folder; downloading"
        run "$RECIPE/download.sh" "$(absolute "$DATA")" ${CHECKSUMS:+--checksums "$CHECKSUMS"}
    fi
    release
fi
for text in "$DATA"/{train,val,test_2016_flickr}.{en,de}; do
    ((DRY_RUN)) || [[ -f $text ]] ||
        die "$text: no such file; $RECIPE/download.sh fetches the data into a new folder"
done
((DRY_RUN)) || (cd "$DATA" && sha256sum --status --check "$RECIPE/texts.sha256") ||
    log "$DATA: not the texts used for the table in README.md; scores will differ"

exec "$RECIPE/../translation/run.sh" "$DATA" "$OUT" "$ARCH" --source-lang en --target-lang de \
    --valid val --test test_2016_flickr --subwords subword-nmt --bpe-operations "$OPERATIONS" \
    --no-cleaning --epochs "$EPOCHS" --tokens-per-batch 2048 --tokens-per-gpu 2048 --fp32 \
    --max-tokens 4000 --about "Multi30k English-German, $EPOCHS epochs." \
    ${OPTIONS[@]+"${OPTIONS[@]}"} -- \
    --encoder-layers 3 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 \
    --encoder-attention-heads 4 \
    --decoder-layers 3 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 \
    --decoder-attention-heads 4 \
    --dropout 0.2 --clip-norm 1.0 --lr 3e-3 --warmup-updates 1000 --num-workers 0 "$@"
