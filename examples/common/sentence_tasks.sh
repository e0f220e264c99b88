# shellcheck shell=bash
# What the prepare.sh of glue, clue and reading share; sourced after steps.sh and `parse`, which set
# SOURCE, PRETRAINED, OUT, and by these options TOKENIZER and WORKERS:
#
#   --tokenizer FOLDER    split the texts as this tokenizer of transformers does; PRETRAINED is
#                         then the folder of an imported model
#   options of steps.sh --workers --dry-run --help

. "$COMMON/tokens.sh"

# Work alone in OUT, with the texts split as those of the pre-training: sets SPLIT, a command that
# takes input and output, SPLIT_BY, the files that it reads, and TEXT_FLAGS, which say the same to other
# commands. $1 is the recipe that makes PRETRAINED.
use_pretrained() {
    local file needed=(dict.txt)
    [[ -n $TOKENIZER || ! -d $PRETRAINED/tokenizer ]] || TOKENIZER=$PRETRAINED/tokenizer
    check_tokenizer
    file=$(subword_file "$(recorded subwords "$PRETRAINED/text")")
    [[ -n $TOKENIZER ]] || needed+=("${file/#codes/bpe.codes}" text)
    for file in "${needed[@]}"; do
        need "$PRETRAINED/$file" "$PRETRAINED: no $file there; give the data-bin that examples/$1" \
            "made, or, with --tokenizer, the folder of an imported model"
    done
    SOURCE=$(absolute "$SOURCE") PRETRAINED=$(absolute "$PRETRAINED") OUT=$(absolute "$OUT")
    alone "$OUT"
    SPLIT=(fairseq-posenc apply-subwords like "$PRETRAINED" --workers "$WORKERS")
    SPLIT_BY=("$PRETRAINED/${needed[1]:-}" "$PRETRAINED/text") TEXT_FLAGS=(--text-of "$PRETRAINED")
    [[ -n $TOKENIZER ]] || return 0
    mapfile -t SPLIT_BY < <(tokenizer_files)
    SPLIT=(fairseq-posenc tokenize "$TOKENIZER" --workers "$WORKERS")
    TEXT_FLAGS=(--subwords transformers --subword-file "$TOKENIZER")
    step dictionary --inputs "${SPLIT_BY[@]}" -- \
        fairseq-posenc tokenize "$TOKENIZER" --dictionary ">$OUT/work/dict.txt"
    ((DRY_RUN)) || cmp -s "$OUT/work/dict.txt" "$PRETRAINED/dict.txt" ||
        die "--tokenizer $TOKENIZER: its symbols are not those in $PRETRAINED/dict.txt; give the" \
            "tokenizer of that model"
}

# Split the texts $2/text/INPUT/SPLIT of task $1 into $2/pieces, for all INPUTS and SPLITS.
split_texts() {
    local input split words=()
    for input in "${INPUTS[@]}"; do
        for split in "${SPLITS[@]}"; do words+=({"<$2/text",">$2/pieces"}"/$input/$split"); done
    done
    step "$1-split" --inputs "${SPLIT_BY[@]}" -- "${SPLIT[@]}" "${words[@]}"
}

# The paths $1/SPLIT of the following splits, with commas between them.
paths_of() {
    local paths=("${@:2}")
    paths=("${paths[@]/#/$1/}")
    (IFS=, && printf '%s' "${paths[*]}")
}

# Binarise the pieces $2/INPUT/SPLIT of task $1 and its labels $3/label/SPLIT (classes or numbers, $4)
# into OUT/$1. The file $3/examples has the number of training examples; the other files that are kept
# from $3 follow.
binarize_task() {
    local task=$1 pieces=$2 text=$3 part input split valid=() test=() texts=() words tests=()
    part=$(part "$OUT/$task")
    preprocess() { # a folder, its dictionary, the folder to write; further flags
        words+=('&&' fairseq-preprocess --only-source --srcdict "$2" --trainpref "$1/train"
            --validpref "$(paths_of "$1" "${valid[@]}")" "${@:4}" --destdir "$3" --workers "$WORKERS")
    }
    for split in "${SPLITS[@]}"; do
        case $split in valid*) valid+=("$split") ;; test*) test+=("$split") ;; esac
        for input in "${INPUTS[@]}"; do texts+=("$pieces/$input/$split"); done
    done
    words=(fairseq-posenc check-text "$PRETRAINED/dict.txt" "${texts[@]}"
        '&&' mkdir -p "$part/label" "$part${TOKENIZER:+/tokenizer}")
    for input in "${INPUTS[@]}"; do
        ((!${#test[@]})) || tests=(--testpref "$(paths_of "$pieces/$input" "${test[@]}")")
        preprocess "$pieces/$input" "$PRETRAINED/dict.txt" "$part/$input" "${tests[@]}"
    done
    if [[ $4 == numbers ]]; then
        for split in train "${valid[@]}"; do
            words+=('&&' cp "$text/label/$split" "$part/label/$split.label")
        done
    else
        preprocess "$text/label" "$text/label/dict.txt" "$part/label"
    fi
    step "$task-binarize" --inputs "$PRETRAINED/dict.txt" "${SPLIT_BY[@]}" "${texts[@]}" \
        "$text/label" --replaces "$OUT/$task" --known-by examples --option OUT -- "${words[@]}" \
        '&&' cp "${SPLIT_BY[@]}" "$part${TOKENIZER:+/tokenizer}" \
        '&&' cp -r "$text/examples" "${@:5}" "$part"
}

# Refuse early to replace OUT/$1, with file $2 by which it is known, or what lies in it.
check_output() {
    step "$1-binarize" --check --replaces "$OUT/$1" --known-by "$2" --option OUT \
        --inputs "$PRETRAINED" "${@:3}"
}

# Prepare task $1 of TABLE, whose files are in folder $2.
prepare_task() {
    local task=$1 folder=$2 work=$OUT/work/$1 plan INPUTS LABELS READING SPLITS FILES kept=() dry=()
    ((!DRY_RUN)) || dry=(--dry-run)
    plan=$(fairseq-posenc sentence-task plan "$TABLE" "$task" "$folder" "${dry[@]}")
    eval "$plan"
    check_output "$task" examples "$folder" "${FILES[@]}" ${TOKENIZER:+"$TOKENIZER"}
    step "$task-extract" --inputs "${FILES[@]}" --settings "$READING" -- \
        fairseq-posenc sentence-task extract "$TABLE" "$task" "$folder" ">$work/text"
    split_texts "$task" "$work"
    [[ " ${SPLITS[*]}" != *" test"* ]] || kept=("$work/text/test")
    binarize_task "$task" "$work/pieces" "$work/text" "$LABELS" "${kept[@]}"
    # Every time: epochs and learning rates may have changed, which repeats no step.
    run fairseq-posenc sentence-task describe "$TABLE" "$task" "$work/text/found.yaml" \
        "$OUT/$task/task.yaml"
}

# Prepare the TASKS of TABLE, whose folders lie in SOURCE, or of SOURCE, a table of own tasks; $1 is
# the recipe that makes PRETRAINED.
prepare_tasks() {
    local all task folder=$SOURCE/TASK
    [[ $SOURCE != *.y*ml ]] || { TABLE=$(absolute "$SOURCE") && folder=$(dirname "$TABLE"); }
    all=$(fairseq-posenc sentence-task names "$TABLE")
    for task in $TASKS; do
        [[ " $all " == *" $task "* ]] || die "--tasks $task: expected some of $all"
        need "${folder/%TASK/$task}/" "--tasks $task: there is no folder ${folder/%TASK/$task}"
    done
    if [[ -z $TASKS ]]; then
        for task in $all; do [[ ! -d ${folder/%TASK/$task} ]] || TASKS+="$task "; done
        [[ -n $TASKS ]] || ((!DRY_RUN)) || TASKS=$all
        [[ -n $TASKS ]] || die "$SOURCE: has no folder of a task ($all)"
    fi
    use_pretrained "$1"
    for task in $TASKS; do prepare_task "$task" "$(absolute "${folder/%TASK/$task}")"; done
    log "data for finetune.sh: $OUT/TASK, for TASK in $TASKS"
}
