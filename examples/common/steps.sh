# shellcheck shell=bash
# What the recipes in examples/ share. Source this file, do not run it:
#
#     set -euo pipefail
#     . "$(dirname "$0")/../common/steps.sh"
#     parse "$@"
#     alone "$OUT"
#
# It sets RECIPE (the folder of the script), COMMON (this folder), REPO (repository root) and DRY_RUN
# (0), makes the repository's .venv usable when no environment is active, and defines
#
#     parse "$@"                 set a variable for each argument and option, as the comment at the
#                                head of the script declares them (fairseq_posenc/steps/options.py)
#     pass ARRAY OPTION...       set ARRAY to those of the OPTIONs that were given, with their values
#     options_of SCRIPT          print the options that another script declares, for pass
#     die TEXT                   print an error on one line, exit with 1
#     need PATH TEXT             die with TEXT if there is no PATH (a folder: PATH/); not in a dry run
#     useless WHY OPTION...      die if one of the OPTIONs was given, as it has no effect WHY
#     log TEXT                   print a line with the time on standard error
#     absolute PATH              print PATH as an absolute path, without slashes at its end
#     fraction N PARTS           print N / PARTS rounded down, but at least 1
#     alone FOLDER [--waits]     from here on, no other process works in FOLDER, and a signal ends all
#                                that the script has started; FOLDER is also where steps leave markers.
#                                If it is empty, only signals count; ARGUMENTS are the script's own
#     shared FOLDER COMMAND...   run COMMAND, a script that several scripts run to prepare FOLDER, alone
#     run COMMAND...             run COMMAND, every time
#     step NAME [OPTIONS] -- COMMAND...   run COMMAND unless it is done: `fairseq-posenc step --help`;
#                                "<FILE" and ">FILE" in it are files that it reads and makes
#     train FOLDER DATA [FLAGS]  fairseq-train with FOLDER as --save-dir: goes on there, ends as if it
#                                had not been interrupted, and is refused with other data or FLAGS
#     part FOLDER                print where the commands of a step with --replaces FOLDER write it
#     model_flags ARRAY FILE [OPTIONS]  set ARRAY to the flags with which the model in FILE goes on; in
#                                a dry run, there need not be such a file
#     plugin_dir                 print the folder for --user-dir
#     fairseq-posenc COMMAND...  the plug-in's command line, of the same copy
#
# With --dry-run, commands are printed and not run. Options that many recipes have:
#
#   --workers N           worker processes (default: all cores)
#   --user-dir DIR        the plug-in (default: fairseq_posenc of this checkout)
#   --dry-run             print the commands without running them
#   --help                this text; a script that is run again goes on where it ended

RECIPE=$(cd "$(dirname "$0")" && pwd)
COMMON=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
REPO=$(cd "$COMMON/../.." && pwd)
DRY_RUN=0

if ! command -v fairseq-train >/dev/null && [[ -x $REPO/.venv/bin/fairseq-train ]]; then
    PATH=$REPO/.venv/bin:$PATH
fi
export PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH}
# What reads options and holds locks needs no package, so that any Python will do.
ANY_PYTHON=$(command -v python3 || command -v python || echo python3)

parse() {
    local assignments
    assignments=$("$ANY_PYTHON" -m fairseq_posenc.steps.options "$0" "$@") || exit
    eval "$assignments"
    [[ -z ${WORKERS+declared} ]] || export WORKERS=${WORKERS:-$(nproc)}
    USER_DIR=${USER_DIR:-$(plugin_dir)}
}

pass() {
    local option words=
    for option in "${@:2}"; do words+=" ${GIVEN[$option]:-}"; done
    eval "$1=($words)"
}

model_flags() {
    local words="--arch ARCH --task TASK" own=()
    pass own --user-dir
    ((DRY_RUN)) && [[ ! -e $2 ]] ||
        words=$(fairseq-posenc model-flags "${@:2}" "${own[@]}") || exit
    eval "$1=($words)"
}

options_of() {
    "$ANY_PYTHON" -m fairseq_posenc.steps.options --names "$1"
}

die() {
    printf '%s: error: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

need() {
    ((DRY_RUN)) || [[ -e $1 ]] || die "${@:2}"
}

useless() {
    local option
    for option in "${@:2}"; do
        [[ -z ${GIVEN[$option]:-} ]] || die "$option: has no effect $1"
    done
}

log() {
    printf '%s %s\n' "$(date +%H:%M:%S)" "$*" >&2
}

absolute() {
    local path=$1
    while [[ $path == ?*/ ]]; do path=${path%/}; done
    [[ $path == /* ]] || path=$PWD/$path
    printf '%s' "$path"
}

fraction() {
    echo $(($1 / $2 > 0 ? $1 / $2 : 1))
}

fairseq-posenc() {
    python -m fairseq_posenc "$@"
}

# The script starts again below a process that holds the lock and waits for signals.
alone() {
    STEPS=$1
    ((!DRY_RUN)) && [[ ${ALONE:-} != "$0 $STEPS" ]] || return 0
    export ALONE="$0 $STEPS"
    [[ -n $1 && ${NODE_RANK:-0} == 0 ]] || shift # the first node has the lock
    exec "$ANY_PYTHON" -m fairseq_posenc alone "$@" --name "${0##*/}" -- bash "$0" "${ARGUMENTS[@]}"
}

shared() {
    if ((DRY_RUN)); then "${@:2}"; else fairseq-posenc alone "$1" --waits -- "${@:2}"; fi
}

# Print the commands in "$@", which have '&&' between them.
show() {
    local word
    printf '+'
    for word; do
        if [[ $word == '&&' ]]; then printf '\n+'; else printf ' %q' "$word"; fi
    done
    printf '\n'
}

run() {
    local status=0
    if ((DRY_RUN)); then
        show "$@"
        return
    fi
    show "$@" >&2
    "$@" || status=$?
    ((status != 137)) || die "$1 was killed (see above; is the memory exhausted?)"
    ((!status)) || die "$1 stopped with status $status (see above)"
}

step() {
    local word options=() inputs=() outputs=() words=()
    while (($#)) && [[ $1 != -- ]]; do options+=("$1"); shift; done
    for word in "${@:2}"; do
        case $word in
            '<'*) word=${word:1} && inputs+=("$word") ;;
            '>'*) word=${word:1} && outputs+=("$word") ;;
        esac
        words+=("$word")
    done
    [[ -z ${inputs[*]} ]] || options+=(--inputs "${inputs[@]}")
    [[ -z ${outputs[*]} ]] || options+=(--outputs "${outputs[@]}")
    if ((!DRY_RUN)); then
        fairseq-posenc step --folder "$STEPS" "${options[@]}" -- "${words[@]}"
    elif [[ ${#words[@]} != 0 ]]; then # no --check
        show "${words[@]}"
    fi
}

# On several nodes, the first one takes care of the folder. Without --update-epoch-batch-itr, the
# batches of a resumed epoch would differ from those of an uninterrupted training.
train() {
    local STEPS=$1 data=$2 how=(--resumes --option=--save-dir)
    shift 2
    ((!${NODE_RANK:-0})) || how+=(--follows)
    step train --data "$data" --outputs "$STEPS/checkpoint_last.pt" "${how[@]}" -- \
        fairseq-train "$data" --save-dir "$STEPS" --update-epoch-batch-itr True "$@"
}

part() {
    printf '%s/.part/%s' "$(dirname "$1")" "$(basename "$1")"
}

# The checkout takes precedence over an installed copy, so that recipe and plug-in match.
plugin_dir() {
    if [[ -f $REPO/fairseq_posenc/__init__.py ]]; then
        printf '%s' "$REPO/fairseq_posenc"
    else
        python -m fairseq_posenc path || die "fairseq_posenc is not installed; give --user-dir"
    fi
}
