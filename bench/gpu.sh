#!/usr/bin/env bash
# All measurements of a device in two parts of under eight minutes each:
#
#   OUT=folder bash bench/gpu.sh 1|2 [--device cuda|cpu] [--small]
#
# Figures are written as they come: `$OUT/partN.jsonl` has a line for each step (its name, seconds
# and exit status) and the lines of JSON that the step printed; `$OUT/partN.log` has the rest. A
# step that takes too long or fails is cut, and the next one runs. `--small` keeps every step short.
#
# Needs Python 3.11, torch, numpy, tqdm and PyYAML; a CUDA build of torch brings triton. With pytest
# and pytest-benchmark it also runs the tests and the peers, and with pytest-xdist the tests run in
# parallel. Wheels in `$WHEELS` (default `.whl`) are installed first. Indexing needs PyStemmer, tyro
# and a file of texts, `$TEXTS` (lines of JSON with `text`).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage="usage: OUT=folder bash bench/gpu.sh 1|2 [--device cuda|cpu] [--small]"
part=${1:-} device=cuda small=
case $part in 1 | 2) shift ;; *) echo "part: expected 1 or 2, got '$part'; $usage" >&2 && exit 2 ;; esac
while (($#)); do
    case $1 in
        --device) device=${2:-} && shift 2 || shift ;;
        --small) small=yes && shift ;;
        *) echo "$1: expected --device or --small, got another; $usage" >&2 && exit 2 ;;
    esac
done
case $device in cuda | cpu) ;; *) echo "--device: expected cuda or cpu, got '$device'; $usage" >&2 && exit 2 ;; esac
: "${OUT:?expected a folder for the figures, got none; $usage}"
mkdir -p "$OUT"
python=${PYTHON:-python3}
figures=$OUT/part$part.jsonl log=$OUT/part$part.log
: >"$figures" && : >"$log"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH}
limit=470 # seconds of a part
begin=$SECONDS

# step NAME SECONDS COMMAND...: lines that begin with "{" are figures.
step() {
    local name=$1 most=$2 left=$((limit - SECONDS + begin)) start=$SECONDS status
    shift 2
    [[ $small ]] && most=$left # small steps are not cut on a busy machine
    ((left < most)) && most=$left
    if ((most < 5)); then
        echo "{\"step\": \"$name\", \"skipped\": \"no time left\"}" >>"$figures"
        return
    fi
    printf '\n== %s: %s\n' "$name" "$*" >>"$log"
    timeout --kill-after=5 "$most" "$@" 2>>"$log" | tee -a "$log" | { grep '^{' || true; } >>"$figures"
    status=${PIPESTATUS[0]}
    echo "{\"step\": \"$name\", \"seconds\": $((SECONDS - start)), \"status\": $status}" >>"$figures"
}
skip() { echo "{\"step\": \"$1\", \"skipped\": \"$2\"}" >>"$figures"; }
has() { "$python" -c "import importlib.util as u, sys; sys.exit(any(u.find_spec(m) is None for m in sys.argv[1:]))" "$@"; }

wheels=${WHEELS:-.whl}
if compgen -G "$wheels/*.whl" >/dev/null; then
    step wheels 60 "$python" -m pip install --no-index --no-deps --quiet "$wheels"/*.whl
fi

bench=("$python" -m bench.device --device "$device")
if [[ $small ]]; then
    sizes=(--atoms 300 --batch 1 4 --seconds 0) ceiling=64 drawn=600 compiled=()
    tests=(tests/index/test_device.py) perf=(--smoke --contenders ours -k propagate) race_limit=100 races=(propagate)
else
    sizes=(--batch 1 64 256 1024 --seconds 1) ceiling=8192 drawn=10000000 compiled=(--atoms 100000)
    tests=(tests/ops tests/rank tests/index) perf=(--device "$device")
    race_limit=25 races=(topk_cosine maxsim personalized_pagerank lanczos spread_activation spmm propagate bm25)
fi

if [[ $part == 1 ]]; then
    step ceilings 40 "$python" -m bench.ceilings --device "$device" --size $ceiling
    if has pytest; then
        workers=()
        has xdist && [[ ! $small ]] && workers=(-n 8)
        step tests 150 "$python" -m pytest -m cuda "${workers[@]}" "${tests[@]}" -q --maxfail 20 --continue-on-collection-errors
    else
        skip tests "pytest is not installed"
    fi
    if [[ $small ]]; then
        step rich 60 "${bench[@]}" "${sizes[@]}" --rich --mode fixed
        step graph 60 "${bench[@]}" "${sizes[@]}" --rich --mode graph
    else
        step plain-100k 60 "${bench[@]}" "${sizes[@]}" --atoms 100000
        step graph-100k 60 "${bench[@]}" "${sizes[@]}" --atoms 100000 --mode graph
        step fixed-100k 40 "${bench[@]}" "${sizes[@]}" --atoms 100000 --mode fixed
        step rich-100k 60 "${bench[@]}" "${sizes[@]}" --atoms 100000 --rich
        step graph-rich-100k 60 "${bench[@]}" "${sizes[@]}" --atoms 100000 --rich --mode graph
        step plain-1m 80 "${bench[@]}" "${sizes[@]}" --atoms 1000000
        step graph-1m 80 "${bench[@]}" "${sizes[@]}" --atoms 1000000 --mode graph
        step rich-1m 80 "${bench[@]}" "${sizes[@]}" --atoms 1000000 --rich
    fi
    step drawn 75 "${bench[@]}" "${sizes[@]}" --atoms $drawn --drawn-on-device --half
else
    if has pytest pytest_benchmark; then
        for race in "${races[@]}"; do
            step "$race" $race_limit "$python" -m bench.perf "bench/perf/test_$race.py" "${perf[@]}"
        done
    else
        skip peers "pytest or pytest-benchmark is not installed"
    fi
    if [[ $small ]]; then
        skip compile "compilation takes minutes"
    else
        step compile 120 "${bench[@]}" "${compiled[@]}" --batch 1 64 --seconds 1 --mode compile
    fi
    if [[ ! ${TEXTS:-} ]]; then
        skip indexing "TEXTS names no file"
    elif ! has Stemmer tyro; then
        skip indexing "PyStemmer or tyro is not installed"
    else
        step indexing 90 "$python" -m bench.scale --data "$TEXTS" --device "$device" --atoms 200000 --questions 256 --concepts pattern
    fi
    if command -v ncu >/dev/null && [[ $device == cuda ]]; then
        step ncu 60 ncu --clock-control none --launch-count 3 -k regex:graphmem "${bench[@]}" --atoms 100000 --batch 64 --seconds 0
    else
        skip ncu "ncu is not installed"
    fi
fi
echo "{\"step\": \"part $part\", \"seconds\": $((SECONDS - begin)), \"status\": 0}" >>"$figures"
