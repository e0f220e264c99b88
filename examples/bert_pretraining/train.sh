#!/usr/bin/env bash
# Masked language models: pre-train one model of the TUPE paper, RoFormer or RoBERTa.
#
#   train.sh MODEL DATA [options] [-- flags for fairseq-train]
#
# MODEL is one of bert_a bert_r tupe_a tupe_r tupe_a_tie_cls bert_ad roformer shaw roberta,
# DATA the data-bin folder that prepare.sh made. The hyper-parameters are those of a paper;
# flags after -- override them. fairseq-train starts one process per GPU: do not use
# torchrun. Run again with the same --save-dir, it resumes from checkpoint_last.pt.
#
#   --paper PAPER         tupe: Table 1, 1M updates of 256 samples at 1e-4
#                         roformer: 100k updates of 64 samples at 1e-5
#                         roberta: Table 9, 500k updates of 8,192 samples at 6e-4 (4e-4)
#                         roberta-256, roberta-2k, roberta-8k: the three rows of Table 3
#                         (roberta for the model roberta, tupe for the others)
#   --size SIZE           base or large: 12 layers of 768 channels, or 24 of 1,024 (base)
#   --save-dir DIR        checkpoints, train.log and at the end the model folder, model
#                         (runs/bert_pretraining/MODEL, with -PAPER, -large, -amos and so on)
#   --updates N           number of updates, instead of the paper's: warm-up is the same share of
#                         them, a checkpoint is kept at every tenth (100k, 300k, 600k)
#   --batch N             samples per update, over all GPUs, instead of the paper's
#   --format NAME         what a sample is (full-sentences): segment-pair and sentence-pair, with
#                         next sentence prediction, full-sentences, doc-sentences (RoBERTa, Table 2)
#   --static-masks N      N masks of each sample, in turn, instead of a new one in every epoch
#   --samples-per-gpu N   maximum samples per GPU and pass (32); the rest of the batch is
#                         gathered over several passes (--update-freq)
#   --gpus N              GPUs on this node (all visible ones)
#   --cpu                 one process without GPU or fp16, for a quick try
#   --nodes N             number of nodes (1)
#   --node-rank N         number of this node, from 0
#   --slurm               take these two from SLURM_NNODES and SLURM_NODEID
#   --init-method URL     tcp://HOST:PORT of the first node; needed for several nodes
#   --optimizer NAME      adam: the paper's AdamW with linear decay, or amos: constant learning
#                         rate of 1/sqrt(updates), pip install pytorch-optimizer (adam)
#   --user-dir DIR        the plug-in (fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/cluster.sh
. "$RECIPE/../common/cluster.sh"
# shellcheck source=../common/tokens.sh
. "$RECIPE/../common/tokens.sh"
# shellcheck source=../common/papers.sh
. "$RECIPE/../common/papers.sh"

MODELS="bert_a bert_r tupe_a tupe_r tupe_a_tie_cls bert_ad roformer shaw roberta"
MODEL="" DATA="" SAVE_DIR="" USER_DIR="" OPTIMIZER=adam OWN_UPDATES="" OWN_BATCH="" LIMIT=32
PAPER="" SIZE=base FORMAT=full-sentences STATIC=0
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --save-dir) SAVE_DIR=$(value "$@"); shift 2 ;;
        --paper) PAPER=$(value "$@"); shift 2 ;;
        --size) SIZE=$(value "$@"); shift 2 ;;
        --updates) OWN_UPDATES=$(value "$@"); shift 2 ;;
        --batch) OWN_BATCH=$(value "$@"); shift 2 ;;
        --format) FORMAT=$(value "$@"); shift 2 ;;
        --static-masks) STATIC=$(value "$@"); shift 2 ;;
        --samples-per-gpu) LIMIT=$(value "$@"); shift 2 ;;
        --optimizer) OPTIMIZER=$(value "$@"); shift 2 ;;
        --user-dir) USER_DIR=$(value "$@"); shift 2 ;;
        --cpu | --slurm) cluster_switch "$1"; shift ;;
        --gpus | --nodes | --node-rank | --init-method) cluster_option "$@"; shift 2 ;;
        --) shift; break ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" MODEL DATA; shift ;;
    esac
done
# The remaining "$@" are passed to fairseq-train.

# The --tokens-per-sample among flags for fairseq-train.
tokens_per_sample() {
    local longest=512 previous="" flag
    for flag in "$@"; do
        [[ $previous != --tokens-per-sample ]] || longest=$flag
        [[ $flag != --tokens-per-sample=* ]] || longest=${flag#*=}
        previous=$flag
    done
    whole_number --tokens-per-sample "$longest"
    printf '%s\n' "$longest"
}

[[ -n $DATA ]] || die "give the model and the data folder; see --help"
[[ " $MODELS " == *" $MODEL "* ]] || die "$MODEL: unknown model; expected one of $MODELS"
USUAL_PAPER=tupe
[[ $MODEL != roberta ]] || USUAL_PAPER=roberta
PAPER=${PAPER:-$USUAL_PAPER}
NUMBERS=$(paper_settings "$PAPER" "$SIZE")
read -r BATCH UPDATES WARMUP RATE BETA2 CLIP <<<"$NUMBERS"
[[ -z $OWN_UPDATES ]] || whole_number --updates "$OWN_UPDATES"
[[ -z $OWN_BATCH ]] || whole_number --batch "$OWN_BATCH"
WARMUP=$(fraction "$((${OWN_UPDATES:-$UPDATES} * WARMUP))" "$UPDATES")
UPDATES=${OWN_UPDATES:-$UPDATES} BATCH=${OWN_BATCH:-$BATCH}
whole_number --samples-per-gpu "$LIMIT"
[[ $STATIC == 0 ]] || whole_number --static-masks "$STATIC"
need python fairseq-train
cluster_flags
((DRY_RUN)) || [[ -f $DATA/dict.txt ]] ||
    die "$DATA: no dict.txt there; give the data-bin folder that prepare.sh made"
USER_DIR=${USER_DIR:-$(plugin_dir)}
NAME=$MODEL
[[ $PAPER == "$USUAL_PAPER" ]] || NAME+=-$PAPER
[[ $SIZE == base ]] || NAME+=-$SIZE
[[ $OPTIMIZER == adam ]] || NAME+=-$OPTIMIZER
[[ $FORMAT == full-sentences ]] || NAME+=-$FORMAT
[[ $STATIC == 0 ]] || NAME+=-static$STATIC
SAVE_DIR=${SAVE_DIR:-runs/bert_pretraining/$NAME}

equal_shares "--batch $BATCH" "$BATCH" "$LIMIT"
case $OPTIMIZER in
    adam)
        STEP=(--optimizer adam --adam-betas "(0.9, $BETA2)" --adam-eps 1e-6 --weight-decay 0.01
            --lr "$RATE" --lr-scheduler polynomial_decay --total-num-update "$UPDATES") ;;
    amos)
        RATE=$(awk -v updates="$UPDATES" 'BEGIN { printf "%.2e", 1 / sqrt(updates) }')
        STEP=(--optimizer amos --amos-momentum 0.9 --lr "$RATE" --lr-scheduler fixed
            --fp16-no-flatten-grads) ;;
    *) die "--optimizer $OPTIMIZER: expected adam or amos" ;;
esac

# RoBERTa's architecture is BERT's, with a learned table of positions.
ARCH=${MODEL/#roberta/bert_a}_masked_lm_base SHAPE=()
[[ $SIZE == base ]] || SHAPE=(--encoder-layers 24 --encoder-embed-dim 1024
    --encoder-ffn-embed-dim 4096 --encoder-attention-heads 16)

# The formats of RoBERTa's Table 2.  Where samples are short, there are more of them in a batch.
TASK=masked_lm_pairs ROWS=(--max-tokens "$((SHARE * $(tokens_per_sample "$@")))")
PAIRS=(--pairs nsp --num-segments 2 --separator-token 2) # </s> </s> as in GLUE's recipe
case $FORMAT in
    segment-pair) INPUT=("${PAIRS[@]}") ROWS=(--batch-size "$SHARE") ;;
    sentence-pair) INPUT=("${PAIRS[@]}" --unit sentence) ;;
    full-sentences) INPUT=(--sample-break-mode complete) ROWS=(--batch-size "$SHARE") ;;
    doc-sentences) INPUT=(--sample-break-mode complete_doc) ;;
    *) die "--format $FORMAT: expected segment-pair, sentence-pair, full-sentences or doc-sentences" ;;
esac
if [[ $FORMAT == full-sentences && $STATIC == 0 ]]; then
    TASK=masked_lm
else
    INPUT+=(--static-masks "$STATIC")
fi

((NODE_RANK)) || replaceable --save-dir "$SAVE_DIR/model" model.json
# Epochs are irrelevant here: between two checkpoints, a small corpus has many and a large one
# less than one.
train_model "$SAVE_DIR" "$DATA" --user-dir "$USER_DIR" --task "$TASK" \
    --arch "$ARCH" ${SHAPE[@]+"${SHAPE[@]}"} --tokens-per-sample 512 "${INPUT[@]}" \
    --mask-prob 0.15 --leave-unmasked-prob 0.1 --random-token-prob 0.1 \
    --criterion "$TASK" --dropout 0.1 --attention-dropout 0.1 \
    "${STEP[@]}" --warmup-updates "$WARMUP" --clip-norm "$CLIP" --max-update "$UPDATES" \
    "${ROWS[@]}" --update-freq "$PASSES" --required-batch-size-multiple 1 \
    --seed 1 --no-epoch-checkpoints \
    --save-interval 1000000 --validate-interval 1000000 \
    --save-interval-updates "$(fraction "$UPDATES" 100)" --keep-interval-updates 1 \
    --keep-interval-updates-pattern "$(fraction "$UPDATES" 10)" \
    --log-format simple --log-interval 100 --log-file "$SAVE_DIR/train.log" \
    "${CLUSTER[@]}" "$@"
pack_trained --save-dir "$SAVE_DIR/model" "$SAVE_DIR/checkpoint_last.pt" "$DATA" "Pre-trained on $DATA."
