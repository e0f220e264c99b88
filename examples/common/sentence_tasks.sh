# shellcheck shell=bash
# What the prepare.sh of glue and clue do; sourced after lib.sh.

# shellcheck source=tokens.sh
. "$COMMON/tokens.sh"

TABLE=$RECIPE/tasks.yaml # the tasks of the benchmark

# Options and folders: sets SOURCE, PRETRAINED, OUT, TASKS, TOKENIZER and WORKERS, for own tasks TABLE.
#   sentence_options NAME PRETRAINING "$@"
# NAME is the benchmark, PRETRAINING the recipe that makes PRETRAINED; RECIPE is the caller's folder.
sentence_options() {
    local name=$1 pretraining=$2 task all
    shift 2
    read_options "$name" "$@"
    [[ $SOURCE != *.yaml && $SOURCE != *.yml ]] || TABLE=$(absolute "$SOURCE")
    all=$(python "$COMMON/tasks.py" names "$TABLE")
    for task in $TASKS; do
        [[ " $all " == *" $task "* ]] || die "--tasks $task: expected some of $all"
        ((DRY_RUN)) || [[ -d $(folder_of "$task") ]] ||
            die "--tasks $task: there is no folder $(folder_of "$task")"
    done
    if [[ -z $TASKS ]]; then
        for task in $all; do
            [[ ! -d $(folder_of "$task") ]] || TASKS+="$task "
        done
        [[ -n $TASKS ]] || die "$SOURCE: has no folder of a task ($all)"
    fi
    read_pretrained "$pretraining"
}

# Read the options and the three folders: read_options NAME "$@"
read_options() {
    local name=$1
    shift
    SOURCE="" PRETRAINED="" OUT="" TASKS="" TOKENIZER="" WORKERS=$(nproc)
    while (($#)); do
        case $1 in
            --help) usage ;;
            --dry-run) DRY_RUN=1; shift ;;
            --tasks) TASKS=$(value "$@"); shift 2 ;;
            --tokenizer) TOKENIZER=$(value "$@"); shift 2 ;;
            --workers) WORKERS=$(value "$@"); shift 2 ;;
            -*) unknown_option "$1" ;;
            *) positional "$1" SOURCE PRETRAINED OUT; shift ;;
        esac
    done
    [[ -n $OUT ]] || die "give the folders of $name, of the pre-training's data and of the output"
    whole_number --workers "$WORKERS"
    need python fairseq-preprocess
}

# Check what texts are split by, make the folders absolute, and hold OUT; $1 makes PRETRAINED.
read_pretrained() {
    local pretraining=$1 file
    [[ -n $TOKENIZER || ! -d $PRETRAINED/tokenizer ]] || TOKENIZER=$PRETRAINED/tokenizer
    check_tokenizer
    local files=(dict.txt)
    [[ -n $TOKENIZER ]] || files+=("$(pretrained_subwords)" text)
    for file in "${files[@]}"; do
        ((DRY_RUN)) || [[ -f $PRETRAINED/$file ]] ||
            die "$PRETRAINED: no $file there; give the data-bin that examples/$pretraining made," \
            "or, with --tokenizer, the folder of an imported model"
    done
    export WORKERS
    SOURCE=$(absolute "$SOURCE") PRETRAINED=$(absolute "$PRETRAINED") OUT=$(absolute "$OUT")
    hold "$OUT"
}

# The name of the file in PRETRAINED that texts are split by, where that is no tokenizer.
pretrained_subwords() {
    subword_file "$(recorded subwords "$PRETRAINED/text")"
}

# The folder of a task's files: one for each in a benchmark, that of the YAML file for own tasks.
folder_of() {
    if [[ $TABLE == "$RECIPE"/*.yaml ]]; then printf '%s' "$SOURCE/$1"; else dirname "$TABLE"; fi
}

# Refuse to replace $OUT/$1 unless it is data prepared here, with file $2, and holds no input; $3 and
# further arguments are inputs beside PRETRAINED and TOKENIZER.
check_output() {
    replaceable OUT "$OUT/$1" "${@:2}" "$PRETRAINED" ${TOKENIZER:+"$TOKENIZER"}
}

# Refuse a tokenizer that is not the model's.
check_symbols() {
    local STEPS=$OUT/work/steps
    run mkdir -p "$STEPS"
    chain ""
    ((DRY_RUN)) || STEP_CHAIN+=$(tokenizer_digest)$'\n'
    dictionary_step "$OUT/work/dict.txt"
    ((DRY_RUN)) || cmp -s "$OUT/work/dict.txt" "$PRETRAINED/dict.txt" ||
        die "--tokenizer $TOKENIZER: its symbols are not those in $PRETRAINED/dict.txt; give the" \
            "tokenizer of that model"
}

# A digest of what texts are split by.
splitting() {
    if [[ -n $TOKENIZER ]]; then
        tokenizer_digest
        sha256sum <"$PRETRAINED/dict.txt"
    else
        cat "$PRETRAINED"/{dict.txt,"$(pretrained_subwords)",text} | sha256sum
    fi
}

# Split the text $WORK/text/INPUT/SPLIT as that of the pre-training; in a dry run without
# PRETRAINED, as the recipe PRETRAINING does by default: split_text SPLIT INPUT PRETRAINING
split_text() {
    local split=$1 input=$2 pretraining=$3 text=$PRETRAINED/text lang case flags=()
    local source=$WORK/text/$input/$split target=$WORK/pieces/$input/$split
    case=$(recorded keep-case "$text")
    if [[ -n $TOKENIZER ]]; then
        tokens_step "$split-$input" "$source" "$target"
    elif [[ $(pretrained_subwords) == sentencepiece.model ]]; then
        [[ -n $case ]] || flags+=(--lower-case)
        step "split-$split-$input" "$target" -- python "$COMMON/spm.py" \
            ${flags[@]+"${flags[@]}"} apply "$PRETRAINED/sentencepiece.model" "$source" "$target"
    elif [[ -n $(recorded segmenter "$text") || (! -f $text && $pretraining == clue*) ]]; then
        local words=$WORK/words/$input/$split pieces=$COMMON/../clue_pretraining/pieces.py
        [[ $(recorded segmenter "$text") != spaces ]] || flags+=(--segmented)
        step "segment-$split-$input" "$words" -- python "$pieces" segment \
            ${flags[@]+"${flags[@]}"} ${case:+"$case"} "$source" "$words"
        if [[ $(pretrained_subwords) == words.txt ]]; then
            step "split-$split-$input" "$target" -- \
                python "$COMMON/words.py" apply "$PRETRAINED/words.txt" "$words" "$target"
            return
        fi
        step "split-$split-$input" "$target" -- \
            python "$pieces" split "$PRETRAINED/bpe.codes" "$words" "$target"
    else
        local tokens=$WORK/tokens/$input/$split
        lang=$(recorded lang "$text")
        [[ -n $case ]] || flags+=(--lower-case)
        step "tokenize-$split-$input" "$tokens" -- python "$COMMON/moses.py" tokenize \
            --lang "${lang:-en}" ${flags[@]+"${flags[@]}"} "$source" "$tokens"
        step "apply-bpe-$split-$input" "$target" -- \
            python "$COMMON/bpe.py" apply "$PRETRAINED/bpe.codes" "$tokens" "$target"
    fi
}

# Binarise the texts of folder $1 into folder $2; further arguments go to fairseq-preprocess.
_preprocess() {
    local texts=$1 folder=$2
    shift 2
    run fairseq-preprocess --only-source --trainpref "$texts/train" --destdir "$folder" \
        --workers "$WORKERS" --validpref "$(prefixes "$texts" "${VALID[@]}")" "$@"
}

# The paths of splits in folder $1, with commas between them.
prefixes() {
    local folder=$1 paths
    shift
    paths=("${@/#/$folder/}")
    (IFS=, && printf '%s' "${paths[*]}")
}

# Binarise $WORK/pieces/INPUT, for INPUT in INPUTS, and the labels into $OUT/TASK, with what texts
# are split by.
#   binarize TASK classes|numbers
# VALID and TEST name the validation and test sets.
binarize() {
    local task=$1 labels=$2 input split tests texts=()
    local part=$OUT/$task.part
    for input in "${INPUTS[@]}"; do
        for split in train "${VALID[@]}" ${TEST[@]+"${TEST[@]}"}; do
            texts+=("$WORK/pieces/$input/$split")
        done
    done
    run fairseq-posenc check-text "$PRETRAINED/dict.txt" "${texts[@]}"
    run rm -rf "$part"
    for input in "${INPUTS[@]}"; do
        tests=()
        ((!${#TEST[@]})) || tests=(--testpref "$(prefixes "$WORK/pieces/$input" "${TEST[@]}")")
        _preprocess "$WORK/pieces/$input" "$part/$input" --srcdict "$PRETRAINED/dict.txt" \
            ${tests[@]+"${tests[@]}"}
    done
    if [[ $labels == numbers ]]; then
        run mkdir -p "$part/label"
        for split in train "${VALID[@]}"; do
            run cp "$WORK/text/label/$split" "$part/label/$split.label"
        done
    else
        _preprocess "$WORK/text/label" "$part/label" --srcdict "$WORK/text/label/dict.txt"
    fi
    ((!${#TEST[@]})) || run cp -r "$WORK/text/test" "$part/test"
    if [[ -n $TOKENIZER ]]; then
        keep_splitting "$part"
    else
        run cp "$PRETRAINED"/{"$(pretrained_subwords)",text} "$part"
    fi
    ((DRY_RUN)) || wc -l <"$WORK/text/label/train" >"$part/examples"
    replace_folder "$part" "$OUT/$task"
}

# Prepare a task of TABLE: prepare_task TASK PRETRAINING
prepare_task() {
    local TASK=$1 pretraining=$2 folder plan labels reading split file input outputs planned=() files=()
    local WORK=$OUT/work/$1 STEPS=$OUT/work/$1/steps INPUTS=() VALID=() TEST=()
    folder=$(folder_of "$TASK")
    planned=(python "$COMMON/tasks.py" plan "$TABLE" "$TASK" "$folder")
    ((!DRY_RUN)) || planned+=(--dry-run)
    plan=$("${planned[@]}")
    { read -ra INPUTS && read -r labels && read -r reading; } <<<"$plan"
    chain "$reading"$'\n'
    ((DRY_RUN)) || STEP_CHAIN+=$(splitting)$'\n'
    while IFS=$'\t' read -r split file; do
        case $split in valid*) VALID+=("$split") ;; test*) TEST+=("$split") ;; esac
        files+=("$file")
        ((DRY_RUN)) || STEP_CHAIN+="$split ${file##*/} $(sha256sum <"$file")"$'\n'
    done < <(tail -n +4 <<<"$plan")
    check_output "$TASK" examples "$folder" "${files[@]}"
    outputs=("$WORK"/text/{found.yaml,label/train})
    for split in train "${VALID[@]}" ${TEST[@]+"${TEST[@]}"}; do
        outputs+=("${INPUTS[@]/%//$split}")
    done
    outputs=("${outputs[@]/#input/$WORK/text/input}")
    step extract "${outputs[@]}" -- python "$COMMON/task_files.py" extract "$TABLE" "$TASK" \
        "$folder" "$WORK/text"
    outputs=("$OUT/$TASK/examples" "$OUT/$TASK/label")
    for split in train "${VALID[@]}" ${TEST[@]+"${TEST[@]}"}; do
        for input in "${INPUTS[@]}"; do
            split_text "$split" "$input" "$pretraining"
            outputs+=("$OUT/$TASK/$input/$split".{bin,idx})
        done
    done
    step binarize "${outputs[@]}" -- binarize "$TASK" "$labels"
    # Every time: epochs and learning rates may have changed, which repeats no step.
    run python "$COMMON/task_files.py" describe "$TABLE" "$TASK" "$WORK/text/found.yaml" \
        "$OUT/$TASK/task.yaml"
}

# What a prepare.sh does: prepare_tasks NAME PRETRAINING "$@", with arguments as for sentence_options
prepare_tasks() {
    sentence_options "$@"
    [[ -z $TOKENIZER ]] || check_symbols
    for TASK in $TASKS; do
        prepare_task "$TASK" "$2"
    done
    log "data for finetune.sh: $OUT/TASK, for TASK in $TASKS"
}
