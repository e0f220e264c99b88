#!/usr/bin/env bash
# Long Chinese text: pre-train a model in the six stages of RoFormer's Table 4.
#
#   train.sh MODEL DATA [options] [-- flags for fairseq-train]
#
# MODEL is roformer, or one of the baselines of Table 3: wobert (learned positions), nezha (clipped
# relative positions) and bert (learned positions, for data in characters). DATA is the data-bin folder
# of prepare.sh. Each stage starts from the weights of the one before.
#
#   --stages "NxNxN ..."  stages: tokens in a sample, samples in an update, updates (512x256x200000
#                         1536x256x12500 256x256x120000 128x512x80000 1536x256x10000 512x512x30000)
#   --save-dir DIR        stage1, stage2, ... with checkpoints, train.log and model folder each; at the
#                         end checkpoint_last.pt and model of the last
#                         (default: runs/long_chinese/MODEL)
#   --tokens-per-gpu N    maximum tokens per GPU and pass; the rest of the batch is gathered over
#                         several passes, --update-freq (16384)
#   options of ../common/cluster.sh
#   options of ../common/steps.sh --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/tokens.sh"

# RoFormer, Table 4: tokens in a sample, samples in an update, updates.
PAPER="512x256x200000 1536x256x12500 256x256x120000 128x512x80000 1536x256x10000 512x512x30000"
LONGEST=0
for stage in $STAGES; do
    length=${stage%%x*}
    ((length <= LONGEST)) || LONGEST=$length
    ((TOKENS_PER_GPU >= length)) ||
        die "--tokens-per-gpu $TOKENS_PER_GPU: a sample of stage $stage has $length"
done
# A table of positions has to be as long as the longest stage from the first one on.
TABLE=(--position-encoding learned --max-positions "$LONGEST")
case $MODEL in
    roformer) LEVEL=word POSITIONS=(--position-encoding rotary) ;;
    wobert) LEVEL=word POSITIONS=("${TABLE[@]}") ;;
    nezha) LEVEL=character POSITIONS=(--position-encoding nezha) ;;
    bert) LEVEL=character POSITIONS=("${TABLE[@]}") ;;
    *) die "$MODEL: unknown model; expected roformer, wobert, nezha or bert" ;;
esac
need "$DATA/dict.txt" "$DATA: no dict.txt there; give the data-bin folder that prepare.sh made"
FOUND=$(recorded level "$DATA/text")
[[ -z $FOUND || $FOUND == "$LEVEL" ]] ||
    log "$DATA: is in the level $FOUND; in the paper's Table 3, $MODEL reads the level $LEVEL"
SAVE_DIR=${SAVE_DIR:-runs/long_chinese/$MODEL}
((!SLURM)) || NODE_RANK=${SLURM_NODEID:-0}
alone "$SAVE_DIR"

# The rest is as in section 4.2, in bert_pretraining.
pass OPTIONS --gpus --cpu --nodes --node-rank --slurm --init-method --user-dir --dry-run
number=0 BEFORE=() PUBLISHED=()
for stage in $STAGES; do
    number=$((number + 1)) folder=$SAVE_DIR/stage$number
    IFS=x read -r length batch updates <<<"$stage"
    log "stage $number: $updates updates of $batch samples of $length tokens"
    "$RECIPE/../bert_pretraining/train.sh" roformer "$DATA" --paper roformer --save-dir "$folder" \
        --updates "$updates" --batch "$batch" --samples-per-gpu $((TOKENS_PER_GPU / length)) \
        "${OPTIONS[@]}" -- --tokens-per-sample "$length" --sample-break-mode none \
        "${POSITIONS[@]}" --criterion masked_lm_accuracy "${BEFORE[@]}" "${EXTRA[@]}"
    BEFORE=(--finetune-from-model "$folder/checkpoint_last.pt")
done
((!${NODE_RANK:-0})) || exit 0
for name in checkpoint_last.pt model; do
    run ln -sfn "stage$number/$name" "$SAVE_DIR/$name"
done
[[ $STAGES != "$PAPER" ]] || PUBLISHED=(--paper)
((DRY_RUN)) || fairseq-posenc script "$RECIPE/tables.py" "$SAVE_DIR" --stages "$STAGES" \
    "${PUBLISHED[@]}"
