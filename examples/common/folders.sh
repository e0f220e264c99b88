# shellcheck shell=bash
# Folders that a script replaces, and the data that runs were trained on. Sourced by lib.sh; defines
#
#     replaceable FLAG FOLDER FILE [INPUT...]  error if FOLDER, which FLAG can change, is there and not
#                                as the script makes it, with FILE in it, or if an INPUT lies in it
#     replace_folder PART FOLDER put folder PART in the place of FOLDER
#     pack_model FLAG FOLDER CHECKPOINT [FLAGS...]  write the model folder, anew; with an export to
#                                CTranslate2 if that is installed and can compute the model
#     same_run FLAG FOLDER COMMAND...  error if FOLDER, which FLAG can change, was started with
#                                another COMMAND
#     use_data FOLDER            the steps and runs that follow use the data in FOLDER: sets
#                                DATA_FOLDER, and DATA_DIGEST, which steps depend on
#     same_data FLAG FOLDER      error if FOLDER, which FLAG can change, was trained on other data
#     note_data FOLDER           record in FOLDER, a run, that it was trained on these data
#     warn_of_other_data FOLDER...  say which of these runs were trained on other data

DATA_FOLDER="" DATA_DIGEST=""

# True if path $1 is folder $2 or lies in it, by whatever names.
lies_in() {
    local path=$1 folder
    [[ -e $path && -d $2 ]] || return 1
    [[ -d $path ]] || path=$(dirname "$path")
    path=$(cd "$path" && pwd -P) folder=$(cd "$2" && pwd -P)
    [[ ${path%/}/ == "${folder%/}"/* ]]
}

replaceable() {
    local flag=$1 folder=${2%/} file=$3 input
    shift 3
    ((DRY_RUN)) && return 0
    [[ -e $folder || -L $folder ]] || return 0
    for input in "$@"; do
        ! lies_in "$input" "$folder" ||
            die "$folder: would be replaced, and $input lies in it; give another $flag"
    done
    [[ -f $folder/$file || (-d $folder && -z $(contents "$folder")) ]] ||
        die "$folder: exists, and is not what this script makes there (it has no $file); move it" \
            "away, or give another $flag"
}

# The old folder is removed when the new one is in its place: half a folder would not be known as the
# script's own. One with the same content stays, and is no newer than the runs of it.
replace_folder() {
    local part=$1 folder=$2
    if ((DRY_RUN)) || [[ ! -e $folder && ! -L $folder ]]; then
        run mv "$part" "$folder"
    elif diff -rq --exclude='*.log' "$part" "$folder" >/dev/null 2>&1; then
        run rm -rf "$part"
    else
        run mv "$folder" "$part/.replaced"
        run mv "$part" "$folder"
        run rm -rf "$folder/.replaced"
    fi
}

# It is packed beside the old one, under its own name, which is in the card.
pack_model() {
    local flag=$1 folder checkpoint=$3 name part
    folder=$(absolute "$2")
    name=${folder##*/} part=${folder%/*}/.${folder##*/}.part
    shift 3
    replaceable "$flag" "$folder" model.json
    run rm -rf "$part"
    run fairseq-posenc pack "$checkpoint" "$part/$name" --ctranslate2 auto "$@"
    replace_folder "$part/$name" "$folder"
    run rm -rf "$part"
}

# A run can only be resumed with the command that started it.
same_run() {
    local flag=$1 folder=$2 begun
    shift 2
    ((DRY_RUN)) && return 0
    printf -v begun '%q ' "$@"
    [[ ! -f $folder/command || $(<"$folder/command") == "$begun" ]] ||
        die "$folder was started with other flags (see its file command); give another $flag"
    mkdir -p "$folder"
    write_line "$folder/command" "$begun"
}

# What a training reads of data folder $1, by `find`, whose actions are the further arguments. Test
# sets and task.yaml may change without another training.
data_files() {
    local folder=$1
    shift
    find -L "$folder" -type f \( -name 'dict*.txt' -o -name 'train*' -o -name 'valid*' \
        -o -name reading.json \) ! -name '*.log' "$@"
}

# A digest of their content: of large files, of both ends. (`digest_of` of fairseq_posenc.study does
# the same with all files of a folder; it takes seconds to import.)
data_digest() {
    local folder=$1 end=$((1 << 26)) file size
    (cd "$folder" && data_files . -print0) | LC_ALL=C sort -z |
        while IFS= read -r -d '' file; do
            size=$(($(wc -c <"$folder/$file")))
            printf '%s %s\n' "$file" "$size"
            if ((size <= 2 * end)); then
                sha256sum <"$folder/$file"
            else
                { head -c "$end" "$folder/$file" && tail -c "$end" "$folder/$file"; } | sha256sum
            fi
        done | sha256sum | cut -d ' ' -f 1
}

use_data() {
    ((DRY_RUN)) && return 0
    DATA_FOLDER=$1 DATA_DIGEST=$(data_digest "$1")
}

# True if none of the data is newer than file $1: earlier versions did not record the data of a run.
data_older_than() {
    [[ -z $(data_files "$DATA_FOLDER" -newer "$1") ]]
}

same_data() {
    local flag=$1 folder=$2 file
    ((DRY_RUN)) && return 0
    if ! compgen -G "$folder/checkpoint*.pt" >/dev/null; then
        : # nothing is trained yet
    elif [[ -f $folder/data.sha256 ]]; then
        [[ $(<"$folder/data.sha256") == "$DATA_DIGEST" ]] ||
            die "$folder was trained on other data than $DATA_FOLDER has now; give another $flag"
    else
        for file in "$folder"/{command,train.log}; do
            [[ ! -f $file ]] || data_older_than "$file" ||
                die "$folder is of an earlier version, and older than the data in $DATA_FOLDER; give" \
                    "another $flag, or, if it is of these data, touch its command and train.log"
        done
    fi
    note_data "$folder"
}

note_data() {
    ((DRY_RUN)) && return 0
    mkdir -p "$1"
    write_line "$1/data.sha256" "$DATA_DIGEST"
}

warn_of_other_data() {
    local folder
    ((DRY_RUN)) && return 0
    for folder in "$@"; do
        [[ ! -f $folder/data.sha256 || $(<"$folder/data.sha256") == "$DATA_DIGEST" ]] ||
            log "${folder%/}: is of other data than $DATA_FOLDER has now; make it again or remove it"
    done
}
