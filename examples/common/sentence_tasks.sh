# shellcheck shell=bash
# What the prepare.sh of glue, clue and reading share; sourced after steps.sh and `parse`, which set
# SOURCE, PRETRAINED, OUT, TOKENIZER and WORKERS.

# shellcheck source=tokens.sh
. "$COMMON/tokens.sh"

# Work alone in OUT, with the texts split as those of the pre-training: sets SPLIT, a command that
# takes input and output, and SPLIT_BY, the files that it reads. $1 is the recipe that makes PRETRAINED.
use_pretrained() {
    local file needed=(dict.txt)
    [[ -n $TOKENIZER || ! -d $PRETRAINED/tokenizer ]] || TOKENIZER=$PRETRAINED/tokenizer
    check_tokenizer
    [[ -n $TOKENIZER ]] || needed+=("$(subword_file "$(recorded subwords "$PRETRAINED/text")")" text)
    for file in "${needed[@]}"; do
        ((DRY_RUN)) || [[ -f $PRETRAINED/$file ]] ||
            die "$PRETRAINED: no $file there; give the data-bin that examples/$1 made, or, with" \
                "--tokenizer, the folder of an imported model"
    done
    SOURCE=$(absolute "$SOURCE") PRETRAINED=$(absolute "$PRETRAINED") OUT=$(absolute "$OUT")
    alone "$OUT"
    if [[ -n $TOKENIZER ]]; then
        TEXT_FLAGS=(--subwords transformers --subword-file "$TOKENIZER")
        SPLIT=(fairseq-posenc tokenize "$TOKENIZER" --workers "$WORKERS")
        mapfile -t SPLIT_BY < <(tokenizer_files)
        step dictionary --inputs "${SPLIT_BY[@]}" --outputs "$OUT/work/dict.txt" -- \
            fairseq-posenc tokenize "$TOKENIZER" --dictionary "$OUT/work/dict.txt"
        ((DRY_RUN)) || cmp -s "$OUT/work/dict.txt" "$PRETRAINED/dict.txt" ||
            die "--tokenizer $TOKENIZER: its symbols are not those in $PRETRAINED/dict.txt; give the" \
                "tokenizer of that model"
    else
        text_flags "$PRETRAINED"
        [[ $1 != clue* || -f $PRETRAINED/text ]] || # a dry run
            TEXT_FLAGS=(--tokenizer jieba --subwords marked-pieces
                --subword-file "$PRETRAINED/bpe.codes" --lowercase)
        applied "${TEXT_FLAGS[@]}"
        SPLIT_BY=("$PRETRAINED"/{"${needed[1]}",text})
    fi
}

# Set SPLIT to the command for these flags of `fairseq-posenc pack`.
applied() {
    local kind="" file="" words=()
    while (($#)); do
        case $1 in
            --subwords) kind=$2; shift 2 ;;
            --subword-file) file=$2; shift 2 ;;
            --lowercase) words+=("$1"); shift ;;
            *) [[ -z $2 ]] || words+=("$1" "$2"); shift 2 ;;
        esac
    done
    SPLIT=(fairseq-posenc apply-subwords "$kind" "$file" "${words[@]}" --workers "$WORKERS")
}

# The paths $1/SPLIT of the following splits, with commas between them.
paths_of() {
    local paths=("${@:2}")
    paths=("${paths[@]/#/$1/}")
    (IFS=, && printf '%s' "${paths[*]}")
}

# Split the texts $2/text/INPUT/SPLIT of task $1 into $2/pieces, for all INPUTS and SPLITS.
split_texts() {
    local input split sources=() pieces=() pairs=()
    for input in "${INPUTS[@]}"; do
        for split in "${SPLITS[@]}"; do
            sources+=("$2/text/$input/$split") pieces+=("$2/pieces/$input/$split")
            pairs+=("${sources[-1]}" "${pieces[-1]}")
        done
    done
    step "$1-split" --inputs "${SPLIT_BY[@]}" "${sources[@]}" --outputs "${pieces[@]}" -- \
        "${SPLIT[@]}" "${pairs[@]}"
}

# Binarise the pieces $2/INPUT/SPLIT of task $1 and its labels $3/label/SPLIT (classes or numbers, $4)
# into OUT/$1. The file $3/examples has the number of training examples; the other files that are kept
# from $3 follow.
binarize() {
    local task=$1 split_in=$2 text=$3 labels=$4 input split validation=() unlabelled=() texts=() words tests part
    part=$(part "$OUT/$task")
    for split in "${SPLITS[@]}"; do
        case $split in valid*) validation+=("$split") ;; test*) unlabelled+=("$split") ;; esac
        for input in "${INPUTS[@]}"; do texts+=("$split_in/$input/$split"); done
    done
    words=(fairseq-posenc check-text "$PRETRAINED/dict.txt" "${texts[@]}")
    for input in "${INPUTS[@]}"; do
        tests=()
        ((!${#unlabelled[@]})) || tests=(--testpref "$(paths_of "$split_in/$input" "${unlabelled[@]}")")
        words+=('&&' fairseq-preprocess --only-source --srcdict "$PRETRAINED/dict.txt"
            --trainpref "$split_in/$input/train" --validpref "$(paths_of "$split_in/$input" "${validation[@]}")"
            "${tests[@]}" --destdir "$part/$input" --workers "$WORKERS")
    done
    if [[ $labels == numbers ]]; then
        words+=('&&' mkdir -p "$part/label")
        for split in train "${validation[@]}"; do
            words+=('&&' cp "$text/label/$split" "$part/label/$split.label")
        done
    else
        words+=('&&' fairseq-preprocess --only-source --srcdict "$text/label/dict.txt"
            --trainpref "$text/label/train" --validpref "$(paths_of "$text/label" "${validation[@]}")"
            --destdir "$part/label" --workers "$WORKERS")
    fi
    [[ -z $TOKENIZER ]] || words+=('&&' mkdir -p "$part/tokenizer")
    words+=('&&' cp "${SPLIT_BY[@]}" "$part${TOKENIZER:+/tokenizer}"
        '&&' cp -r "$text/examples" "${@:5}" "$part")
    step "$task-binarize" --inputs "$PRETRAINED/dict.txt" "${SPLIT_BY[@]}" "${texts[@]}" \
        "$text/label" --replaces "$OUT/$task" --known-by examples --option OUT -- "${words[@]}"
}

# Refuse early to replace OUT/$1, with file $2 by which it is known, or what lies in it.
check_output() {
    ((DRY_RUN)) || step "$1-binarize" --check --replaces "$OUT/$1" --known-by "$2" --option OUT \
        --inputs "$PRETRAINED" "${@:3}"
}

# Prepare task $1 of TABLE, whose files are in folder $2.
prepare_task() {
    local task=$1 folder=$2 work=$OUT/work/$1 plan INPUTS LABELS READING SPLITS FILES kept=() dry=()
    ((!DRY_RUN)) || dry=(--dry-run)
    plan=$(fairseq-posenc sentence-task plan "$TABLE" "$task" "$folder" "${dry[@]}")
    eval "$plan"
    check_output "$task" examples "$folder" "${FILES[@]}" ${TOKENIZER:+"$TOKENIZER"}
    step "$task-extract" --inputs "${FILES[@]}" --settings "$READING" --outputs "$work/text" -- \
        fairseq-posenc sentence-task extract "$TABLE" "$task" "$folder" "$work/text"
    split_texts "$task" "$work"
    [[ " ${SPLITS[*]}" != *" test"* ]] || kept=("$work/text/test")
    binarize "$task" "$work/pieces" "$work/text" "$LABELS" "${kept[@]}"
    # Every time: epochs and learning rates may have changed, which repeats no step.
    run fairseq-posenc sentence-task describe "$TABLE" "$task" "$work/text/found.yaml" \
        "$OUT/$task/task.yaml"
}

# Prepare the TASKS of TABLE, whose folders lie in SOURCE, or of SOURCE, a table of own tasks; $1 is
# the recipe that makes PRETRAINED.
prepare_tasks() {
    local all task own=0
    if [[ $SOURCE == *.yaml || $SOURCE == *.yml ]]; then TABLE=$(absolute "$SOURCE") own=1; fi
    all=$(fairseq-posenc sentence-task names "$TABLE")
    folder_of() { if ((own)); then dirname "$TABLE"; else printf '%s' "$SOURCE/$1"; fi; }
    for task in $TASKS; do
        [[ " $all " == *" $task "* ]] || die "--tasks $task: expected some of $all"
        ((DRY_RUN)) || [[ -d $(folder_of "$task") ]] ||
            die "--tasks $task: there is no folder $(folder_of "$task")"
    done
    if [[ -z $TASKS ]]; then
        for task in $all; do [[ ! -d $(folder_of "$task") ]] || TASKS+="$task "; done
        [[ -n $TASKS ]] || die "$SOURCE: has no folder of a task ($all)"
    fi
    WORKERS=${WORKERS:-$(nproc)}
    use_pretrained "$1"
    for task in $TASKS; do prepare_task "$task" "$(folder_of "$task")"; done
    log "data for finetune.sh: $OUT/TASK, for TASK in $TASKS"
}
