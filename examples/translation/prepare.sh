#!/usr/bin/env bash
# Translation: from a folder of parallel text to binary data, for any pair of languages.
#
#   prepare.sh TEXTS OUT --source-lang LANG --target-lang LANG [options]
#
# TEXTS holds {train,valid,test}.LANG for both languages, plain or compressed (.gz, .xz, .bz2), one
# sentence a line; test may be missing. OUT/data-bin is then what train.sh and evaluate.sh take. If
# interrupted, run it again to resume; a changed option repeats only the steps that depend on it.
#
#   --source-lang LANG    ending of the source texts, also the language for Moses
#   --target-lang LANG    the same of the target
#   --train NAME          name of the training texts (train)
#   --valid NAME          name of the validation texts (valid)
#   --test NAME           name of the test texts (test)
#   --tokenizer NAME      moses or none; none leaves the text as it is (none with SentencePiece,
#                         else moses)
#   --dash-splits         Moses splits rich-text as rich @-@ text
#   --subwords NAME       sentencepiece, subword-nmt or none (sentencepiece)
#   --sentencepiece-model NAME  unigram or bpe (unigram)
#   --byte-fallback       SentencePiece writes unknown characters as bytes
#   --character-coverage X  part of the characters that get pieces in SentencePiece (0.9999)
#   --vocabulary NAME     joint: one set of subwords and one dictionary for both languages;
#                         separate: one for each (joint)
#   --vocabulary-size N   symbols in each set (8000): pieces of SentencePiece; characters and merges
#                         of subword-nmt; with --subwords none, the most frequent words (all)
#   --bpe-operations N    merges of subword-nmt, instead
#   --learn-from N        lines that SentencePiece learns from, or different words that subword-nmt
#                         learns from (1000000)
#   --max-length N        drop training pairs with more tokens on a side (250)
#   --ratio R             drop training pairs with a larger ratio of lengths (1.5)
#   --no-cleaning         drop no training pair
#   --longest N           refuse longer sentences in valid and test (1022 tokens)
#   --workers N           worker processes (all cores)
#   --settings            print how the texts would be prepared, and end
#   --dry-run             print the commands without running them
#   --help                this text

set -euo pipefail
RECIPE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=../common/lib.sh
. "$RECIPE/../common/lib.sh"
# shellcheck source=../common/translation.sh
. "$RECIPE/../common/translation.sh"

TEXTS="" OUT="" SUBWORDS=sentencepiece TOKENIZER="" TYPE="" FALLBACK="" COVERAGE="" SIZE=""
OPERATIONS="" LEARN_FROM=1000000 MAX_LENGTH=250 RATIO=1.5 CLEANING=1 SETTINGS=0 LONGEST=1022
WORKERS=$(nproc)
declare -A NAMES=([train]=train [valid]=valid [test]=test)
while (($#)); do
    case $1 in
        --help) usage ;;
        --dry-run) DRY_RUN=1; shift ;;
        --dash-splits) DASH_SPLITS=--dash-splits; shift ;;
        --byte-fallback) FALLBACK=--byte-fallback; shift ;;
        --no-cleaning) CLEANING=0; shift ;;
        --settings) SETTINGS=1; shift ;;
        --source-lang) SOURCE=$(value "$@"); shift 2 ;;
        --target-lang) TARGET=$(value "$@"); shift 2 ;;
        --train | --valid | --test) NAMES[${1#--}]=$(value "$@"); shift 2 ;;
        --tokenizer) TOKENIZER=$(value "$@"); shift 2 ;;
        --subwords) SUBWORDS=$(value "$@"); shift 2 ;;
        --sentencepiece-model) TYPE=$(value "$@"); shift 2 ;;
        --character-coverage) COVERAGE=$(value "$@"); shift 2 ;;
        --vocabulary) VOCABULARY=$(value "$@"); shift 2 ;;
        --vocabulary-size) SIZE=$(value "$@"); shift 2 ;;
        --bpe-operations) OPERATIONS=$(value "$@"); shift 2 ;;
        --learn-from) LEARN_FROM=$(value "$@"); shift 2 ;;
        --max-length) MAX_LENGTH=$(value "$@"); shift 2 ;;
        --ratio) RATIO=$(value "$@"); shift 2 ;;
        --longest) LONGEST=$(value "$@"); shift 2 ;;
        --workers) WORKERS=$(value "$@"); shift 2 ;;
        -*) unknown_option "$1" ;;
        *) positional "$1" TEXTS OUT; shift ;;
    esac
done
[[ -n $OUT ]] || die "give the folder of the texts and the folder to write to; see --help"

# Error unless value $2 of flag $1 is one of the others.
one_of() {
    local flag=$1 given=$2 name
    shift 2
    for name in "$@"; do [[ $given != "$name" ]] || return 0; done
    die "$flag $given: expected $(printf '%s, ' "${@:1:$#-1}" | sed 's/, $//') or ${!#}"
}

# Error if flag $2 has a value, $3, but subwords other than $1 are wanted.
only_with() {
    [[ $SUBWORDS == "$1" || -z $3 ]] || die "$2: has no effect with --subwords $SUBWORDS"
}

[[ -n $SOURCE && -n $TARGET ]] || die "give --source-lang and --target-lang; see --help"
plain_name --source-lang "$SOURCE"
plain_name --target-lang "$TARGET"
[[ $SOURCE != "$TARGET" ]] || die "--target-lang $TARGET: is the source language, too"
one_of --subwords "$SUBWORDS" sentencepiece subword-nmt none
one_of --vocabulary "$VOCABULARY" joint separate
[[ -n $TOKENIZER ]] || TOKENIZER=$([[ $SUBWORDS == sentencepiece ]] && echo none || echo moses)
one_of --tokenizer "$TOKENIZER" moses none
[[ $TOKENIZER == moses || -z $DASH_SPLITS ]] || die "--dash-splits: has no effect without Moses"
only_with sentencepiece --sentencepiece-model "$TYPE"
only_with sentencepiece --byte-fallback "$FALLBACK"
only_with sentencepiece --character-coverage "$COVERAGE"
only_with subword-nmt --bpe-operations "$OPERATIONS"
[[ -z $TYPE ]] || one_of --sentencepiece-model "$TYPE" unigram bpe
[[ -z $SIZE || -z $OPERATIONS ]] || die "--bpe-operations $OPERATIONS: give it or --vocabulary-size"
[[ -z $OPERATIONS ]] || whole_number --bpe-operations "$OPERATIONS"
[[ -z $SIZE ]] || whole_number --vocabulary-size "$SIZE"
whole_number --learn-from "$LEARN_FROM"
whole_number --max-length "$MAX_LENGTH"
whole_number --longest "$LONGEST"
whole_number --workers "$WORKERS"
[[ $RATIO =~ ^[0-9]+(\.[0-9]+)?$ ]] || die "--ratio $RATIO: expected a number such as 1.5"
HELPER=spm.py SUBWORD_FILE=sentencepiece.model
[[ $SUBWORDS != subword-nmt ]] || HELPER=bpe.py SUBWORD_FILE=bpe.codes
if [[ $SUBWORDS == none ]]; then
    SUBWORD_FILE=""
elif [[ $VOCABULARY == separate ]]; then
    TARGET_SUBWORD_FILE=$TARGET.$SUBWORD_FILE SUBWORD_FILE=$SOURCE.$SUBWORD_FILE
fi
if ((SETTINGS)); then
    text_settings
    exit 0
fi
export WORKERS
need python fairseq-preprocess

TEXTS=$(absolute "$TEXTS") OUT=$(absolute "$OUT")
STEPS=$OUT/steps
LANGS=("$SOURCE" "$TARGET")

# ---- the texts: TEXT[SPLIT.LANG] is the file

find_text() {
    local plain=$1 file
    for file in "$plain"{,.gz,.xz,.bz2}; do
        [[ ! -f $file ]] || { printf '%s' "$file"; return; }
    done
}

declare -A TEXT=()
SPLITS=(train valid)
((DRY_RUN)) || [[ -d $TEXTS ]] || die "$TEXTS: no such folder"
if ((DRY_RUN)) || [[ -n $(find_text "$TEXTS/${NAMES[test]}.$SOURCE") ||
    -n $(find_text "$TEXTS/${NAMES[test]}.$TARGET") || ${NAMES[test]} != test ]]; then
    SPLITS+=(test)
fi
for split in "${SPLITS[@]}"; do
    for lang in "${LANGS[@]}"; do
        plain=$TEXTS/${NAMES[$split]}.$lang
        TEXT[$split.$lang]=$(find_text "$plain")
        if ((DRY_RUN)); then
            TEXT[$split.$lang]=${TEXT[$split.$lang]:-$plain}
        elif [[ -z ${TEXT[$split.$lang]} ]]; then
            die "$plain: no such file, nor .gz, .xz or .bz2"
        fi
    done
done
hold "$OUT"
replaceable OUT "$OUT/data-bin" text.settings "$TEXTS"
for split in "${SPLITS[@]}"; do
    for lang in "${LANGS[@]}"; do
        ((DRY_RUN)) || STEP_CHAIN+="$split.$lang $(sha256sum <"${TEXT[$split.$lang]}")"$'\n'
    done
done

# ---- steps; what fairseq-preprocess reads is plain, everything before it is compressed

for split in "${SPLITS[@]}"; do
    pair=("${TEXT[$split.$SOURCE]}" "${TEXT[$split.$TARGET]}") copies=()
    if [[ $split != train ]]; then
        copies=("$OUT/held-out/$split.$SOURCE" "$OUT/held-out/$split.$TARGET")
        TEXT[$split.$SOURCE]=${copies[0]} TEXT[$split.$TARGET]=${copies[1]}
    fi
    step "check-$split" ${copies[@]+"${copies[@]}"} -- \
        python "$COMMON/pairs.py" "${pair[@]}" ${copies[@]+"${copies[@]}"}
done

# Run a helper on the texts of a language: $1 is the name of the step, $2 the folder of its
# outputs, $3 the language, then follows the command. The outputs become TEXT.
on_texts() {
    local name=$1 folder=$2 lang=$3 split file files=() outputs=()
    shift 3
    for split in "${SPLITS[@]}"; do
        file=$folder/$split.$lang
        [[ $split != train ]] || file+=.gz
        files+=("${TEXT[$split.$lang]}" "$file")
        outputs+=("$file")
        TEXT[$split.$lang]=$file
    done
    step "$name-$lang" "${outputs[@]}" -- "$@" "${files[@]}"
}

if [[ $TOKENIZER == moses ]]; then
    for lang in "${LANGS[@]}"; do
        on_texts tokenize "$OUT/tokens" "$lang" \
            python "$COMMON/moses.py" tokenize --lang "$lang" ${DASH_SPLITS:+"$DASH_SPLITS"}
    done
fi
declare -A TOKENS=()
for split in "${SPLITS[@]:1}"; do TOKENS[$split]=${TEXT[$split.$TARGET]}; done

# Learn subwords from the training texts of the languages $2... and write them to $1.
learn() {
    local file=$1 lang texts=() how=()
    shift
    for lang in "$@"; do texts+=("${TEXT[train.$lang]}"); done
    if [[ $SUBWORDS == sentencepiece ]]; then
        how=(--sentences "$LEARN_FROM" ${TYPE:+--type "$TYPE"} ${FALLBACK:+"$FALLBACK"}
            ${COVERAGE:+--character-coverage "$COVERAGE"})
    else
        how=(--words "$LEARN_FROM" ${OPERATIONS:+--operations "$OPERATIONS"})
    fi
    [[ -n $OPERATIONS ]] || how+=(--vocabulary-size "${SIZE:-8000}")
    step "learn-${file##*/}" "$file" -- python "$COMMON/watch.py" "$OUT/subwords" \
        python "$COMMON/$HELPER" learn "${how[@]}" "$file" "${texts[@]}"
}

if [[ $SUBWORDS != none ]]; then
    declare -A MODEL=([$SOURCE]=$OUT/subwords/$SUBWORD_FILE)
    MODEL[$TARGET]=$OUT/subwords/${TARGET_SUBWORD_FILE:-$SUBWORD_FILE}
    if [[ $VOCABULARY == joint ]]; then
        learn "${MODEL[$SOURCE]}" "${LANGS[@]}"
    else
        for lang in "${LANGS[@]}"; do learn "${MODEL[$lang]}" "$lang"; done
    fi
    for lang in "${LANGS[@]}"; do
        on_texts split "$OUT/subwords" "$lang" python "$COMMON/$HELPER" apply "${MODEL[$lang]}"
    done
fi
for split in "${SPLITS[@]:1}"; do
    step "lengths-$split" -- python "$COMMON/pairs.py" --longest "$LONGEST" \
        "${TEXT[$split.$SOURCE]}" "${TEXT[$split.$TARGET]}"
done
CLEAN=("$COMMON/pairs.py")
((!CLEANING)) || CLEAN=("$COMMON/clean.py" --max-length "$MAX_LENGTH" --ratio "$RATIO")
step clean "$OUT/clean/train".{"$SOURCE","$TARGET"} -- \
    python "${CLEAN[@]}" "${TEXT[train.$SOURCE]}" "${TEXT[train.$TARGET]}" \
    "$OUT/clean/train".{"$SOURCE","$TARGET"}

binarize() {
    local part=$OUT/data-bin.part split lang flags=(--workers "$WORKERS") file
    for split in "${SPLITS[@]:1}"; do flags+=("--${split}pref" "${TEXT[$split.$SOURCE]%.*}"); done
    [[ $VOCABULARY == separate ]] || flags+=(--joined-dictionary)
    [[ $SUBWORDS != none || -z $SIZE ]] || flags+=(--nwordssrc "$SIZE" --nwordstgt "$SIZE")
    run rm -rf "$part"
    run python "$COMMON/watch.py" "$part" fairseq-preprocess \
        --source-lang "$SOURCE" --target-lang "$TARGET" --trainpref "$OUT/clean/train" "${flags[@]}" \
        --destdir "$part"
    # What evaluate.sh needs is stored with the data.
    for split in "${SPLITS[@]:1}"; do
        for lang in "${LANGS[@]}"; do
            run cp "$OUT/held-out/$split.$lang" "$part/reference.$split.$lang"
        done
        [[ $TOKENIZER == none ]] || run cp "${TOKENS[$split]}" "$part/reference.$split.tok.$TARGET"
    done
    for file in "$SUBWORD_FILE" "$TARGET_SUBWORD_FILE"; do
        [[ -z $file ]] || run cp "$OUT/subwords/$file" "$part/$file"
    done
    ((DRY_RUN)) || text_settings >"$part/text.settings"
    replace_folder "$part" "$OUT/data-bin"
}
BINARY=()
for split in "${SPLITS[@]}"; do
    BINARY+=("$OUT/data-bin/$split.$SOURCE-$TARGET".{"$SOURCE","$TARGET"}.{bin,idx})
done
for split in "${SPLITS[@]:1}"; do
    BINARY+=("$OUT/data-bin/reference.$split".{"$SOURCE","$TARGET"})
    [[ $TOKENIZER == none ]] || BINARY+=("$OUT/data-bin/reference.$split.tok.$TARGET")
done
step binarize "${BINARY[@]}" "$OUT/data-bin"/{dict.{"$SOURCE","$TARGET"}.txt,text.settings} \
    ${SUBWORD_FILE:+"$OUT/data-bin/$SUBWORD_FILE"} \
    ${TARGET_SUBWORD_FILE:+"$OUT/data-bin/$TARGET_SUBWORD_FILE"} -- \
    binarize "$VOCABULARY" "$SUBWORDS" "$SIZE"

log "data for train.sh: $OUT/data-bin"
