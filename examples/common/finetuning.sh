# shellcheck shell=bash
# What the finetune.sh of glue and reading share; sourced after steps.sh and `parse`.

DATA=$(absolute "$DATA") CHECKPOINT=$(absolute "$CHECKPOINT") OUT=$(absolute "$OUT") TASK=${DATA##*/}
NAME=${NAME:-$(basename "$(dirname "$CHECKPOINT")")} EXAMPLES=1 FOLDERS=() AFTER=()
[[ $NAME =~ ^[A-Za-z0-9_][A-Za-z0-9._+-]*$ ]] || die "--name $NAME: expected letters and digits; give one"
[[ ! -f $DATA/examples ]] || EXAMPLES=$(<"$DATA/examples")

# Others may be at work on other seeds: a script holds the folder of its first run, each step its own.
alone_in_first_run() {
    need "$CHECKPOINT" "$CHECKPOINT: no such file"
    alone "$RUNS/lr${LR%% *}-batch${BATCH%% *}-seed${SEEDS%% *}"
}

# Fine-tune CHECKPOINT on DATA, of EXAMPLES, for all of BATCH, LR and SEEDS, with WARMUP percent of PASSES
# and these flags for fairseq-train, and call `finished` after each run. Runs are the FOLDERS in RUNS.
tune_all() {
    local batch rate seed updates
    for batch in $BATCH; do
        updates=$(((EXAMPLES + batch - 1) / batch))
        updates=$((updates * PASSES))
        for rate in $LR; do
            for seed in $SEEDS; do
                FOLDERS+=("$RUNS/lr$rate-batch$batch-seed$seed")
                # Folders of earlier versions do not name the batch where it was the paper's.
                [[ $batch != "${USUAL_BATCHES[*]:-}" || ! -d $RUNS/lr$rate-seed$seed ]] ||
                    FOLDERS[-1]=$RUNS/lr$rate-seed$seed
                tune "${FOLDERS[-1]}" --user-dir "$USER_DIR" "$@" --lr "$rate" \
                    --total-num-update "$updates" --warmup-updates $((updates * WARMUP / 100)) \
                    --max-epoch "$PASSES" --batch-size "$batch" --seed "$seed" "${EXTRA[@]}"
                finished
            done
        done
    done
    ((DRY_RUN)) || fairseq-posenc stale "$RUNS"/lr*-seed*/ --data "$DATA"
}

finished() { :; }

# Fine-tune in folder $1, from the beginning unless it is done, and run AFTER, in which FOLDER stands for
# it; the log gets its final name when all is done.
tune() {
    local STEPS=$1 device=--fp16
    ((!CPU)) || device=--cpu
    step tune --data "$DATA" --inputs "$CHECKPOINT" --outputs "$STEPS/train.log" -- \
        rm -rf "$STEPS"/{train.log{,.part},checkpoint_best.pt,answers} '&&' \
        fairseq-train "$DATA" --save-dir "$STEPS" --update-epoch-batch-itr True \
        --arch posenc_masked_lm --restore-file "$CHECKPOINT" --reset-optimizer --reset-dataloader \
        --reset-meters --reset-lr-scheduler --dropout 0.1 --attention-dropout 0.1 \
        --optimizer adam --lr-scheduler polynomial_decay --maximize-best-checkpoint-metric \
        --required-batch-size-multiple 1 --no-epoch-checkpoints --no-last-checkpoints \
        --no-save-optimizer-state --distributed-world-size 1 --log-format json --log-interval 100 \
        "$device" "${@:2}" --log-file "$STEPS/train.log.part" "${AFTER[@]//FOLDER/$STEPS}" '&&' \
        mv "$STEPS/train.log.part" "$STEPS/train.log"
}
