# shellcheck shell=bash
# The stages of pre-training; sourced after lib.sh. Defines
#
#     STAGES              RoFormer's Table 4: tokens in a sample, samples in an update, updates
#     check_stages LIST   error unless LIST is made of such stages
#     longest_of LIST     print the length of the longest

STAGES="512x256x200000 1536x256x12500 256x256x120000 128x512x80000 1536x256x10000 512x512x30000"

check_stages() {
    local stage
    [[ -n ${1// /} ]] || die "--stages '$1': expected stages such as 512x256x200000"
    for stage in $1; do
        [[ $stage =~ ^[1-9][0-9]*x[1-9][0-9]*x[1-9][0-9]*$ ]] ||
            die "--stages $stage: expected LENGTHxBATCHxUPDATES, such as 512x256x200000"
    done
}

longest_of() {
    local stage longest=0
    for stage in $1; do
        ((${stage%%x*} <= longest)) || longest=${stage%%x*}
    done
    printf '%s' "$longest"
}
