#!/usr/bin/env bash
# Reading comprehension: fine-tune a pre-trained model, for all learning rates and seeds.
#
#   finetune.sh DATA CHECKPOINT OUT [options] [-- flags for fairseq-train]
#
# DATA is the folder of a TASK that prepare.sh made (reading/squad), CHECKPOINT the result of
# pre-training. Hyper-parameters are those of RoBERTa, Table 10 (squad, race; copa and qnli as GLUE), of
# GAU, Table 6 (cmrc, c3, chid), or of RoFormer, section 4.3 (cail). Logs, and the answers to squad and
# cmrc in the published formats, go to OUT/NAME/TASK; it ends with a table of all models and tasks in OUT.
#
#   --seeds "N ..."       seeds (default: 1 2 3 4 5; for the Chinese tasks 1 2 3)
#   --batch N             questions (choices) or windows (spans) per update (default: the paper's)
#   --classifier          of SQuAD 2.0: a classifier tells whether there is an answer, as in
#                         RoBERTa, instead of the span of [CLS]
#   --bert                pairs are [CLS] a [SEP] b [SEP] (cmrc, c3, chid), not
#                         <s> a </s> </s> b </s> (squad, race, copa, qnli, cail)
#   options of ../glue/finetune.sh --name --lr --epochs --epoch --cpu --user-dir --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/finetuning.sh"

need "$DATA/task" "$DATA: is not the folder of a task; give one that prepare.sh made, such as reading/squad"
[[ $TASK == cail ]] && CHOICES=2 || CHOICES=4
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
case $TASK in
    squad | race | copa | qnli) # RoBERTa: everything else as in its pre-training (Table 9)
        SEEDS=${SEEDS:-1 2 3 4 5}
        FLAGS=(--adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --clip-norm 0.0) ;;
    *)
        SEEDS=${SEEDS:-1 2 3}
        [[ $TASK == cail ]] || BERT=1
        FLAGS=(--adam-betas '(0.9, 0.999)' --adam-eps 1e-8 --clip-norm 1.0 --pooler-dropout 0.1) ;;
esac
((!CLASSIFIER)) || [[ $TASK == squad || $TASK == cmrc ]] || die "--classifier: is for squad"
LR=${LR:-${PAPER[0]}} BATCH=${BATCH:-${PAPER[1]}} PASSES=${EPOCHS:-${PAPER[3]}}
RUNS=$OUT/$NAME/$TASK WARMUP=${PAPER[4]} METRIC=accuracy SUBSETS=valid DEVICE=cuda
((!CPU)) || DEVICE=cpu
((BERT)) || FLAGS+=(--separator-token 2)
alone_in_first_run

case $TASK in
    squad | cmrc)
        METRIC=f1 LONGEST=30
        [[ $TASK == squad ]] || LONGEST=64
        FLAGS+=(--init-token 0 --task span_prediction --criterion span_prediction
            --longest-question 64 --longest-answer "$LONGEST")
        ((!CLASSIFIER)) || FLAGS+=(--answerability classifier)
        AFTER=('&&' fairseq-posenc reading answer FOLDER/checkpoint_best.pt "$DATA"
            --output FOLDER/answers --device "$DEVICE")
        # Batches are of windows, and a long passage has several.
        [[ ! -f $DATA/train.questions.jsonl ]] ||
            EXAMPLES=$(fairseq-posenc reading windows "$DATA" "${FLAGS[@]}" "${EXTRA[@]}") ;;
    *)
        for number in 1 2 3; do
            [[ ! -f $DATA/label/valid$number.label ]] || SUBSETS+=,valid$number
        done
        FLAGS+=(--init-token 0 --task sentence_ranking --criterion sentence_ranking
            --num-classes "$CHOICES" --valid-subset "$SUBSETS" --shorten-method truncate)
        # Of two long texts, neither is cut for the other.
        [[ $TASK != cail ]] || FLAGS+=(--max-positions 512 --max-option-length 256) ;;
esac
tune_all "${FLAGS[@]}" --best-checkpoint-metric "$METRIC" --weight-decay "${PAPER[2]}"
run fairseq-posenc script "$COMMON/reading_scores.py" --epoch "$EPOCH" "$OUT"
