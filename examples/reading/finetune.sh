#!/usr/bin/env bash
# Reading comprehension: fine-tune a pre-trained model, for all learning rates and seeds.
#
#   finetune.sh TASK CHECKPOINT OUT [options] [-- flags for fairseq-train]
#
# TASK is a folder that prepare.sh made (reading/squad), CHECKPOINT the result of pre-training.
# Hyper-parameters are those of RoBERTa, Table 10 (squad, race; copa and qnli as GLUE), of GAU, Table 6
# (cmrc, c3, chid), or of RoFormer, section 4.3 (cail); the shape and the position encoding of the model
# come from the checkpoint. Logs, and the answers to squad and cmrc in the published formats, go to
# OUT/NAME/TASK; it ends with a table of all models and tasks in OUT. Stopped and started again, it
# continues with the runs that are not done.
#
#   --name NAME           name of the model in the table (the folder of CHECKPOINT)
#   --lr "X ..."          learning rates (the paper's)
#   --seeds "N ..."       seeds (1 2 3 4 5; for the others 1 2 3)
#   --epochs N            passes over the training data, instead of the paper's
#   --batch N             questions (choices) or windows (spans) per update
#   --epoch WHICH         score of a run: that of its best or of its last epoch on the
#                         validation set (best)
#   --classifier          of SQuAD 2.0: a classifier tells whether there is an answer, as in
#                         RoBERTa, instead of the span of [CLS]
#   --bert                pairs are [CLS] a [SEP] b [SEP] (cmrc, c3, chid), not
#                         <s> a </s> </s> b </s> (squad, race, copa, qnli, cail)
#   --cpu                 without GPU or fp16
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"

DATA="" CHECKPOINT="" OUT="" NAME="" SEEDS="" EPOCHS="" USER_DIR="" RATES="" BATCH="" EPOCH=best
DEVICE=(--fp16) CLASSIFIER=() BERT=0
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --cpu) DEVICE=(--cpu); shift ;;
        --classifier) CLASSIFIER=(--answerability classifier); shift ;;
        --bert) BERT=1; shift ;;
        --name) NAME=$(value "$@"); shift 2 ;;
        --lr) RATES=$(value "$@"); shift 2 ;;
        --seeds) SEEDS=$(value "$@"); shift 2 ;;
        --epochs) EPOCHS=$(value "$@"); shift 2 ;;
        --batch) BATCH=$(value "$@"); shift 2 ;;
        --epoch) EPOCH=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" DATA CHECKPOINT OUT; shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

[[ -n $OUT ]] || die "give the task's folder, the checkpoint and the output folder; see --help"
[[ $EPOCH == best || $EPOCH == last ]] || die "--epoch $EPOCH: expected best or last"
DATA=$(absolute "${DATA%/}") CHECKPOINT=$(absolute "$CHECKPOINT") OUT=$(absolute "$OUT")
need python fairseq-train
TASK=${DATA##*/} CHOICES=4
((DRY_RUN)) || [[ -f $DATA/task ]] ||
    die "$DATA: is not the folder of a task; give one that prepare.sh made, such as reading/squad"
[[ $TASK != cail ]] || CHOICES=2
[[ ! -f $DATA/task ]] || read -r TASK CHOICES <"$DATA/task" || true
#              rate   batch decay epochs warm-up, percent
case $TASK in
    squad) PAPER=(1.5e-5 48 0.01 2 6) ;;
    race) PAPER=(1e-5 16 0.1 4 6) ;;
    copa | qnli) PAPER=(1e-5 16 0.1 10 6) ;; # RoBERTa's of GLUE; no paper here has any of COPA
    cmrc | chid) PAPER=(3e-5 32 0.01 3 10) ;;
    c3) PAPER=(2e-5 24 0.01 8 10) ;;
    cail) PAPER=(2e-5 32 0.01 3 10) ;;
    *) die "$DATA: $TASK is no task of this recipe; run prepare.sh" ;;
esac
RATES=${RATES:-${PAPER[0]}} BATCH=${BATCH:-${PAPER[1]}} EPOCHS=${EPOCHS:-${PAPER[3]}}
# RoBERTa: everything else as in its pre-training (Table 9)
FLAGS=(--adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 0.0) SEPARATOR=(--separator-token 2)
case $TASK in
    squad | race | copa | qnli) SEEDS=${SEEDS:-1 2 3 4 5} ;;
    *)
        SEEDS=${SEEDS:-1 2 3}
        [[ $TASK == cail ]] || BERT=1
        FLAGS=(--adam-betas '(0.9, 0.999)' --adam-eps 1e-8 --clip-norm 1.0 --pooler-dropout 0.1) ;;
esac
((!BERT)) || SEPARATOR=()
for rate in $RATES; do
    learning_rate --lr "$rate"
done
for seed in $SEEDS; do whole_number --seeds "$seed"; done
whole_number --epochs "$EPOCHS"
whole_number --batch "$BATCH"
NAME=${NAME:-$(basename "$(dirname "$CHECKPOINT")")}
plain_name --name "$NAME"
((DRY_RUN)) || [[ -f $CHECKPOINT ]] || die "$CHECKPOINT: no such file"
USER_DIR=${USER_DIR:-$(plugin_dir)}

EXAMPLES=1 METRIC=f1
case $TASK in
    squad | cmrc)
        LONGEST=30
        [[ $TASK == squad ]] || LONGEST=64
        FLAGS+=(--task span_prediction --criterion span_prediction --longest-question 64
            --longest-answer "$LONGEST" ${CLASSIFIER[@]+"${CLASSIFIER[@]}"})
        # batches are of windows, of which a long passage has several
        [[ ! -f $DATA/train.questions.jsonl ]] ||
            EXAMPLES=$(fairseq-posenc reading windows "$DATA" \
                ${SEPARATOR[@]+"${SEPARATOR[@]}"} "${FLAGS[@]}" "$@") ;;
    *)
        ((!${#CLASSIFIER[@]})) || die "--classifier: is for squad"
        [[ ! -f $DATA/examples ]] || EXAMPLES=$(<"$DATA/examples")
        METRIC=accuracy
        # of two long texts, neither is cut for the other
        [[ $TASK != cail ]] || FLAGS+=(--max-positions 512 --max-option-length 256)
        SUBSETS=valid
        for number in 1 2 3; do
            [[ ! -f $DATA/label/valid$number.label ]] || SUBSETS+=,valid$number
        done
        FLAGS+=(--valid-subset "$SUBSETS")
        FLAGS+=(--task sentence_ranking --criterion sentence_ranking --num-classes "$CHOICES"
            --shorten-method truncate) ;;
esac
PASS=$(((EXAMPLES + BATCH - 1) / BATCH)) # updates
UPDATES=$((PASS * EPOCHS))

# A log gets its final name when its run is complete.
tune() {
    local folder=$1
    run rm -rf "$folder"/{train.log{,.part},checkpoint_best.pt,answers}
    train_model "$@" --log-file "$folder/train.log.part"
    if [[ $METRIC == f1 ]]; then
        local device=()
        [[ ${DEVICE[0]} == --cpu ]] || device=(--device cuda)
        run fairseq-posenc reading answer "$folder/checkpoint_best.pt" "$DATA" \
            --output "$folder/answers" ${device[@]+"${device[@]}"}
    fi
    run mv "$folder/train.log.part" "$folder/train.log"
}

RUNS=$OUT/$NAME/$TASK
STEPS=$RUNS/steps
GIVEN=""
((DRY_RUN)) || GIVEN=$(sha256sum "$CHECKPOINT")$'\n'
use_data "$DATA"
for rate in $RATES; do
    for seed in $SEEDS; do
        run_name=lr$rate-batch$BATCH-seed$seed
        folder=$RUNS/$run_name
        chain "$GIVEN"
        hold "$folder"
        step "$run_name" "$folder/train.log" -- tune "$folder" "$DATA" --user-dir "$USER_DIR" \
            --arch posenc_masked_lm --restore-file "$CHECKPOINT" \
            --reset-optimizer --reset-dataloader --reset-meters --reset-lr-scheduler \
            --init-token 0 ${SEPARATOR[@]+"${SEPARATOR[@]}"} "${FLAGS[@]}" \
            --best-checkpoint-metric "$METRIC" --maximize-best-checkpoint-metric \
            --dropout 0.1 --attention-dropout 0.1 --optimizer adam --weight-decay "${PAPER[2]}" \
            --lr "$rate" --lr-scheduler polynomial_decay --total-num-update "$UPDATES" \
            --warmup-updates $((UPDATES * PAPER[4] / 100)) --max-epoch "$EPOCHS" \
            --batch-size "$BATCH" --required-batch-size-multiple 1 --seed "$seed" \
            --no-epoch-checkpoints --no-last-checkpoints --no-save-optimizer-state \
            --distributed-world-size 1 --log-format json --log-interval 100 "${DEVICE[@]}" "$@"
        note_data "$folder"
        release
    done
done
warn_of_other_data "$RUNS"/lr*-seed*
((DRY_RUN)) || run python "$RECIPE/table.py" --epoch "$EPOCH" "$OUT"
