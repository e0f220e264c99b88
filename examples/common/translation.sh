# shellcheck shell=bash
# How the text of a data folder was prepared, for the scripts of examples/translation; sourced before
# `parse`. prepare.sh writes it to the file text.settings in the folder; train.sh and evaluate.sh read
# it. It defines
#
#     text_settings          print the settings, as lines NAME=VALUE
#     read_settings FOLDER   set them from FOLDER/text.settings; in a dry run, from TEXT_SETTINGS
#                            where there is no file yet

SOURCE="" TARGET="" TOKENIZER=moses DASH_SPLITS="" SUBWORDS=subword-nmt VOCABULARY=joint
SUBWORD_FILE="" TARGET_SUBWORD_FILE="" CONTEXT="" CONTEXT_SIDES=""
KNOWN="SOURCE TARGET TOKENIZER DASH_SPLITS SUBWORDS VOCABULARY SUBWORD_FILE TARGET_SUBWORD_FILE"
KNOWN+=" CONTEXT CONTEXT_SIDES"

text_settings() {
    local name
    for name in $KNOWN; do printf '%s=%s\n' "$name" "${!name}"; done
}

read_settings() {
    local file=$1/text.settings name value lines=${TEXT_SETTINGS:-}
    if [[ -f $file ]]; then
        lines=$(<"$file")
    elif ((!DRY_RUN)); then
        die "$1: has no text.settings; give the data-bin folder that prepare.sh made"
    elif [[ -z $lines ]]; then
        log "$1: does not exist yet; the commands are those for Moses and a joint BPE"
    fi
    while IFS='=' read -r name value; do
        [[ -n $name ]] || continue
        [[ " $KNOWN " == *" $name "* ]] || die "$file: $name: unknown setting; run prepare.sh again"
        printf -v "$name" '%s' "$value"
    done <<<"$lines"
}
