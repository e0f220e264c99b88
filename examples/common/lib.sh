# shellcheck shell=bash
# Helpers shared by the recipes in examples/.  Source this file, do not run it:
#
#     set -euo pipefail
#     . "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/../common/lib.sh"
#
# It sets REPO (repository root), COMMON (this folder) and DRY_RUN (0), makes the
# repository's .venv usable when no environment is active, and defines
#
#     usage                      print the comment at the head of the script, exit with 0
#     own_help "$@"              usage if --help is among the options of a script that hands them on
#     die TEXT                   print a one-line error, exit with 1
#     log TEXT                   print a line with the time on standard error
#     value "$@"                 print the value of option $1; error if there is none
#     whole_number FLAG VALUE    error unless VALUE is a whole number above 0
#     learning_rate FLAG VALUE   error unless VALUE is a number such as 2e-5
#     plain_name FLAG VALUE      error unless VALUE can be the name of a file in any folder
#     fraction N PARTS           print N / PARTS rounded down, but at least 1
#     absolute PATH              print PATH as an absolute path, without slashes at its end
#     need COMMAND...            error unless every command is installed (not in a dry run)
#     run COMMAND...             print the command and, except in a dry run, run it
#     chain TEXT                 begin a chain of steps, which depend on TEXT
#     step NAME [OUTPUT...] -- COMMAND...  run COMMAND, which makes the outputs, unless it is done;
#                                STEPS names the folder of the markers
#     train_model FOLDER DATA FLAG...  run fairseq-train with FOLDER as --save-dir, locked; it
#                                resumes there, and ends as if it had not been interrupted
#     write_line FILE TEXT       write FILE whole or not at all
#     logged LOG COMMAND...      run COMMAND; its output is shown and, when it ended well, in LOG
#     trained FOLDER             true if FOLDER has a training that ended
#     train_once FLAG FOLDER COMMAND...  run COMMAND, a recipe's train.sh with FOLDER as --save-dir,
#                                unless that is trained; as for same_run and same_data
#     plugin_dir                 print the folder to pass to --user-dir
#     fairseq-posenc COMMAND...  the plug-in's command line, of the same copy
#
# and what signals.sh, lock.sh and folders.sh define.

COMMON=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$COMMON/../.." && pwd)
DRY_RUN=0
STEP_CHAIN=""

if ! command -v fairseq-train >/dev/null && [[ -x $REPO/.venv/bin/fairseq-train ]]; then
    PATH=$REPO/.venv/bin:$PATH
fi
# shellcheck source=signals.sh
. "$COMMON/signals.sh"
# shellcheck source=lock.sh
. "$COMMON/lock.sh"
# shellcheck source=folders.sh
. "$COMMON/folders.sh"

usage() {
    sed -n '2,/^[^#]/{/^#SBATCH/d;/^#/s/^# \{0,1\}//p}' "$0"
    exit 0
}

own_help() {
    while (($#)) && [[ $1 != -- ]]; do
        [[ $1 != --help ]] || usage
        shift
    done
}

die() {
    printf '%s: error: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

log() {
    printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2
}

value() {
    (($# >= 2)) || die "$1 needs a value; see --help"
    [[ -n $2 ]] || die "$1 '': is empty; leave it out, or give a value"
    printf '%s' "$2"
}

# What may follow --, as the first lines of the script say, such as "flags for fairseq-train".
passed_on() {
    usage | sed -n 's/.*\[-- \(flags for [a-z-]*\)\]$/\1/p'
}

unknown_option() {
    local flags
    flags=$(passed_on)
    die "$1: unknown option; see --help${flags:+ ($flags go after --)}"
}

# Give the argument $1 to the first of the named variables that has no value yet.
positional() {
    local argument=$1 name flags
    shift
    for name; do
        if [[ -z ${!name} ]]; then
            printf -v "$name" '%s' "$argument"
            return
        fi
    done
    flags=$(passed_on)
    die "$argument: unexpected argument; ${flags:-see --help}${flags:+ go after --}"
}

whole_number() {
    [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 $2: expected a whole number above 0"
}

learning_rate() {
    [[ $2 =~ ^[0-9.]+(e-[0-9]+)?$ ]] || die "$1 $2: expected numbers such as 2e-5"
}

plain_name() {
    [[ $2 =~ ^[A-Za-z0-9_][A-Za-z0-9._+-]*$ ]] ||
        die "$1 $2: expected letters, digits, '.', '_', '+' and '-', and a letter or digit first"
}

fraction() {
    echo $(($1 / $2 > 0 ? $1 / $2 : 1))
}

absolute() {
    local path=$1
    while [[ $path == ?*/ ]]; do path=${path%/}; done
    case $path in
        /*) printf '%s' "$path" ;;
        *) printf '%s/%s' "$PWD" "$path" ;;
    esac
}

need() {
    local command
    ((DRY_RUN)) && return 0
    for command in "$@"; do
        command -v "$command" >/dev/null ||
            die "$command is not installed; run scripts/setup.sh or activate your environment"
    done
}

run() {
    local line
    printf -v line ' %q' "$@"
    if ((DRY_RUN)); then
        printf '+%s\n' "$line"
        return 0
    fi
    printf '+%s\n' "$line" >&2
    interruptible "$@" || {
        local status=$? name=$1
        [[ $name != python && $name != plugin_python ]] || name=$2
        ((status != 137)) || die "${name##*/} was killed (see above; is the memory exhausted?)"
        die "${name##*/} stopped with status $status (see above)"
    }
}

chain() {
    STEP_CHAIN=$1
}

# A marker holds a hash of this step's command, of all steps before it and of the data in use, so a
# changed option repeats the steps that depend on it and no others. Of earlier versions it is without
# the data, and counts if it is newer than these. A step that is repeated because an output is
# gone adds a unique word, which the steps after it depend on. While it is repeated, its marker says
# "unfinished": its outputs may be half those of another command.
step() {
    local name=$1 marker=$STEPS/$1 outputs=() output key seen="" again=""
    shift
    while [[ $1 != -- ]]; do
        outputs+=("$1")
        shift
    done
    shift
    STEP_CHAIN+="$name: $*"$'\n'
    key=$(step_key "$DATA_DIGEST")
    if ((!DRY_RUN)) && [[ -f $marker ]]; then
        read -r seen _ again <"$marker" || true
        if [[ -n $DATA_DIGEST && $seen == "$(step_key "")" ]] && data_older_than "$marker"; then
            seen=$key
            mark "$marker" "$key" "$again"
        fi
        [[ $seen == "$key" || $seen == unfinished ]] || again=""
    fi
    if [[ $seen == "$key" ]]; then
        for output in ${outputs[@]+"${outputs[@]}"}; do
            [[ ! -e $output ]] || continue
            log "$name: was done, but $output is gone"
            seen="" again=$(date +%s)-$$
            break
        done
    fi
    STEP_CHAIN+=$again
    if [[ $seen == "$key" ]]; then
        log "$name: already done"
        return 0
    fi
    log "$name"
    ((DRY_RUN)) || [[ ! -f $marker ]] || mark "$marker" unfinished "$again"
    if declare -F "$1" >/dev/null; then
        "$@"
    else
        run "$@"
    fi
    ((DRY_RUN)) && return 0
    for output in ${outputs[@]+"${outputs[@]}"}; do
        [[ -e $output ]] || die "$name: $1 ended without making $output"
    done
    mkdir -p "$STEPS"
    mark "$marker" "$key" "$again"
}

write_line() {
    printf '%s\n' "$2" >"$1.part"
    mv "$1.part" "$1"
}

step_key() {
    printf '%s' "$STEP_CHAIN$1" | sha256sum | cut -d ' ' -f 1
}

mark() {
    write_line "$1" "$2  - $3"
}

# Without --update-epoch-batch-itr, the batches of a resumed epoch differ from those of an
# uninterrupted training. On several nodes, the first one takes care of the folder.
train_model() {
    local folder=$1 data=$2 first=$((${NODE_RANK:-0} == 0))
    shift 2
    run mkdir -p "$folder"
    if ((first)); then
        hold "$folder"
        ((DRY_RUN)) || rm -f "$folder"/*.pt.tmp # what fairseq leaves when it is killed
        replace_damaged "$folder"
    fi
    run fairseq-train "$data" --save-dir "$folder" --update-epoch-batch-itr True "$@"
    ((!first)) || release
}

copy_to() {
    local log=$1
    shift
    run "$@" 2>&1 | tee "$log" >&2
}

# The stream that fairseq's commands write to depends on its version.
logged() {
    local log=$1
    shift
    if ((DRY_RUN)); then
        run "$@"
        return 0
    fi
    interruptible copy_to "$log.part" "$@"
    run mv "$log.part" "$log"
}

# fairseq would add an update to one that ended.
trained() {
    ((!DRY_RUN)) && [[ -f $1/checkpoint_last.pt && -f $1/train.log ]] &&
        grep --quiet 'done training in' "$1/train.log"
}

# Standard output is for the table of the caller, and for the commands of a dry run.
train_once() {
    local flag=$1 folder=$2
    shift 2
    same_data "$flag" "$folder"
    same_run "$flag" "$folder" "$@"
    # Without its checkpoint, a log is that of another training.
    ((DRY_RUN)) || [[ -f $folder/checkpoint_last.pt ]] || rm -f "$folder/train.log"
    if trained "$folder"; then
        log "$folder: already trained"
        return 0
    fi
    if ((DRY_RUN)); then "$@"; else interruptible "$@" >&2; fi
}

# Where checkpoint_last.pt is damaged, go on from the newest whole checkpoint beside it.
replace_damaged() {
    ((DRY_RUN)) || [[ ! -e $1/checkpoint_last.pt ]] ||
        interruptible plugin_python "$COMMON/last_checkpoint.py" "$1" || exit
}

# The checkout takes precedence over an installed copy, so that recipe and plug-in match.
plugin_dir() {
    if [[ -f $REPO/fairseq_posenc/__init__.py ]]; then
        printf '%s' "$REPO/fairseq_posenc"
    else
        python -m fairseq_posenc path || die "fairseq_posenc is not installed; give --user-dir"
    fi
}

plugin_python() {
    PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH} python "$@"
}

fairseq-posenc() {
    plugin_python -m fairseq_posenc "$@"
}
