# Steps of a test run: each has a name, a time limit, a count of tests, and a row in the table at the end. Sourced by
# scripts/test and scripts/check.

step_minutes=${STEP_MINUTES:-20}
state=$(mktemp -d) || exit
: >"$state/table"
# The folder for files of tests, if it is in memory.
memory=
# The name of the lane that this shell runs; empty in the foreground.
lane=
# Whether a process may leave the idle class again: without the right to, it would stand still beside a busy machine.
can_undo_idle=false
chrt --idle 0 chrt --other 0 true 2>/dev/null && can_undo_idle=true
# Lanes by name, and the process group of the step that runs in this shell.
declare -A lanes
current=

# end_lane ID: ends it, and waits until it is gone.
end_lane() { kill "$1" 2>/dev/null && tail --pid="$1" --follow /dev/null; }
# end_step: ends all processes of the step, and waits until they are gone: they may stop servers of their own first.
end_step() {
  local try
  [ -n "$current" ] && kill -- "-$current" 2>/dev/null || return 0
  for try in {1..150}; do
    kill -0 -- "-$current" 2>/dev/null || return 0
    sleep 0.1
  done
  kill -KILL -- "-$current" 2>/dev/null
}
end_all() {
  local id
  end_step
  for id in "${lanes[@]}"; do end_lane "$id"; done
  rm -rf "$state" ${memory:+"$memory"}
}
trap end_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# in_memory: keeps data folders and databases of tests in memory where there is room, since most of what they wait for is the
# disk. The folder goes away with the steps; that of a run that was killed, when the next one starts: nothing locks it any more.
in_memory() {
  local folder=$state gib old lock
  for old in /dev/shm/tidegate-tests.*; do
    [ ! -O "$old" ] || flock --nonblock "$old" rm -rf "$old"
  done
  gib=$(($(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo 2>/dev/null || echo 0) >> 20))
  # Tests run binaries there too.
  if [ "$(df --output=avail --block-size=1G /dev/shm 2>/dev/null | tail -n 1)" -ge 8 ] 2>/dev/null && [ "$gib" -ge 6 ] &&
    ! grep -q '^[^ ]* /dev/shm [^ ]* [^ ]*noexec' /proc/mounts; then
    # It has its name once it is locked: another run removes those of this name that nothing locks.
    memory=$(mktemp -d -p /dev/shm .tidegate-tests.XXXXXX) && exec {lock}<"$memory" && flock "$lock" || return
    folder=/dev/shm/tidegate-tests.${memory##*.}
    mv "$memory" "$folder" && memory=$folder || return
    echo "files of tests: in memory"
  else
    echo "files of tests: on disk, which is slower; in memory they need 8 GiB of /dev/shm and 6 GiB of free memory"
  fi
  # PostgreSQL runs as another user.
  chmod 711 "$folder" && mkdir -m 1777 "$folder/tmp" && export TMPDIR=$folder/tmp
}

# left_out TEXT: says what this machine cannot run. The end of the run says it again.
left_out() {
  echo "left out: $1"
  echo "left out: $1" >>"$state/left_out"
}

# allow_descriptors SCRIPT: raises the soft limit of open files to what a test of ten thousand connections needs.
allow_descriptors() {
  local needed=10300
  [ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge $needed ] || ulimit -S -n $needed 2>/dev/null || {
    echo "$1: a process may open $(ulimit -Hn) files here, and the tests need $needed: raise the limit as root with \`ulimit -n $needed\`" >&2
    return 2
  }
}

# has_room_to_build SCRIPT GIB: fails with a message where the disk lacks this much room for target/.
has_room_to_build() {
  local free built
  mkdir -p target
  free=$(df --output=avail --block-size=1G target | tail -n 1)
  built=$(du --summarize --block-size=1G target | cut -f 1)
  [ $((free + built)) -ge "$2" ] || {
    echo "$1: target/ takes $2 GiB of disk, and $free are free: make room, or move the clone to a disk that has it" >&2
    return 2
  }
}

# step NAME COUNTER COMMAND...: runs a command or a function for at most STEP_MINUTES, and counts its tests. COUNTER is one of
# the functions below. A step that fails without a failed test, or that ran no test, counts as one failure.
step() {
  local name=$1 counter=$2 began=$SECONDS log printing status passed failed
  shift 2
  log=$(mktemp --tmpdir="$state")
  printf '\n== %s (%d:%02d)\n' "$name" $((SECONDS / 60)) $((SECONDS % 60))
  # A process group of its own, which can be ended as a whole.
  set -m
  ("$@") </dev/null >"$log" 2>&1 &
  current=$!
  set +m
  [ -z "$lane" ] || echo "$current" >"$state/$lane.group"
  timeout "${step_minutes}m" tail --follow --lines=+1 --sleep-interval=0.2 --pid="$current" "$log" &
  printing=$!
  if ! wait "$printing"; then
    end_step
    echo "error: stopped after $step_minutes minutes" | tee -a "$log"
  fi
  wait "$current"
  status=$?
  current=
  read -r passed failed < <($counter "$status" "$log")
  # A counter that could not count.
  [[ $passed =~ ^[0-9]+$ && $failed =~ ^[0-9]+$ ]] || passed=0 failed=1
  if [ "$failed" -eq 0 ] && { [ "$status" -ne 0 ] || [ "$passed" -eq 0 ]; }; then
    failed=1
  fi
  [ "$failed" -eq 0 ] || "failures_of_$counter" "$log" | tail -n 20 | cut -c1-500 | sed "s/^/failed: $name: /" >>"$state/failures"
  printf '%s\t%d\t%d\t%d\t%s\n' "$name" "$passed" "$failed" $((SECONDS - began)) "$lane" >>"$state/table"
}

# beside LANE FUNCTION: runs steps in the background, in the processor time that the foreground leaves idle. Each may take three
# times as long as one in the foreground.
beside() {
  (
    trap 'end_step; exit 143' TERM HUP
    lane=$1
    lanes=()
    step_minutes=$((3 * step_minutes))
    if $can_undo_idle; then chrt --idle --pid 0 "$BASHPID"; else renice --priority 10 "$BASHPID" >/dev/null; fi
    "$2"
  ) </dev/null >"$state/$1.lane" 2>&1 &
  lanes[$1]=$!
}

# join LANE: waits until its steps have ended, and prints their output. From now on they run at the usual priority, where this user may raise it.
join() {
  local id group began=$SECONDS
  group=$(cat "$state/$1.group" 2>/dev/null)
  for id in "${lanes[$1]}" ${group:+$(pgrep --pgroup "$group")}; do
    chrt --other --all-tasks --pid 0 "$id" 2>/dev/null
  done
  # It ends well even if steps of it have failed.
  wait "${lanes[$1]}" || printf 'the steps of %s, to their end\t0\t1\t0\t\n' "$1" >>"$state/table"
  printf 'build: waiting for the lane of %s\t0\t0\t%d\t\n' "$1" $((SECONDS - began)) >>"$state/table"
  unset "lanes[$1]"
  cat "$state/$1.lane"
}

# Counters: each prints the numbers of passed and failed tests, from the exit status and the log of a step. Beside each, what
# names the failed tests of a log, a line each.

# whole: one check.
whole() {
  [ "$1" -eq 0 ] && echo 1 0 || echo 0 1
}
failures_of_whole() { tail -n 3 "$1"; }

# libtest: cargo's own test runner, once or several times.
libtest() {
  sed -n 's/^test result: .* \([0-9]*\) passed; \([0-9]*\) failed;.*/\1 \2/p' "$2" |
    awk '{ passed += $1; failed += $2 } END { print passed + 0, failed + 0 }'
}
failures_of_libtest() { grep -E '^(test .* FAILED|error.*)$' "$1"; }

# nextest: its summary lines. A test that ran out of time has failed.
nextest() {
  sed 's/\x1b\[[0-9;]*m//g' "$2" | awk '
    /^ *Summary \[/ {
      gsub(/[(),:]/, " ")
      for (word = 2; word <= NF; word++) {
        if ($word == "passed" && $(word - 1) ~ /^[0-9]+$/) passed += $(word - 1)
        if ($word == "failed" || $word == "timed" || $word == "exec") failed += $(word - 1)
      }
    }
    END { print passed + 0, failed + 0 }'
}
failures_of_nextest() {
  sed 's/\x1b\[[0-9;]*m//g' "$1" | sed -n '/^ *Summary \[/,$p; /^error: stopped/p' | grep -E '^ +[A-Z][A-Z +-]* \[|^error' | sort -u
}

# dashboard: the report that the last line `report: FILE` names. A test that passes only when it is tried again has failed.
dashboard() {
  node -e '
    const { stats, numPassedTests, numFailedTests } = JSON.parse(require("fs").readFileSync(process.argv[1], "utf8"));
    console.log(stats ? `${stats.expected} ${stats.unexpected + stats.flaky}` : `${numPassedTests} ${numFailedTests}`);
  ' "$(sed -n 's/^report: //p' "$2" | tail -n 1)" 2>/dev/null || echo 0 0
}
# Each with the first lines of its error, and with the texts of the page that say what went wrong or goes on.
failures_of_dashboard() {
  node -e '
    const { readFileSync } = require("fs");
    const report = JSON.parse(readFileSync(process.argv[1], "utf8"));
    const print = (name, error) => {
      const lines = (error ?? "").replace(/\x1b\[[0-9;]*m/g, "").split("\n").filter((line) => line.trim() !== "");
      console.log(`${name}: ${lines.slice(0, 6).map((line) => line.trim()).join(" | ")}`);
    };
    const suite = ({ specs = [], suites = [] }) => {
      for (const { file, line, title, tests } of specs) {
        for (const { results } of tests.filter(({ status }) => status === "unexpected" || status === "flaky")) {
          const result = results.find(({ error }) => error);
          print(`${file}:${line} ${title}`, result?.error.message);
          const page = result?.attachments.find(({ name }) => name === "error-context")?.path;
          const said = page ? readFileSync(page, "utf8").split("- main ")[1]?.match(/^ *- (alert|status|paragraph)\b.*: .+$/gm) : null;
          if (said) console.log(`  the page: ${said.map((line) => line.replace(/^.*?: /, "")).join(" | ")}`);
        }
      }
      suites.forEach(suite);
    };
    report.suites?.forEach(suite);
    for (const { message } of report.errors ?? []) print("error", message);
    for (const { name, message, assertionResults } of report.testResults ?? []) {
      if (message) print(name, message);
      for (const { fullName, failureMessages } of assertionResults.filter(({ status }) => status === "failed")) {
        print(fullName, failureMessages[0]);
      }
    }
  ' "$(sed -n 's/^report: //p' "$1" | tail -n 1)" 2>/dev/null || grep -E '^[Ee]rror: ' "$1"
}

# npm_tests SCRIPT REPORT: a script of the dashboard that runs tests and writes this report.
npm_tests() {
  local report=web/test-results/$2 status
  rm -f "$report"
  npm --prefix web run --silent "$1"
  status=$?
  echo "report: $report"
  return "$status"
}

# Prints the table of the steps, what failed, then `N passed, N failed`. The exit status says whether all passed.
summary() {
  awk -F '\t' -v total="$SECONDS" -v names="$state/failures" -v left_out="$state/left_out" '
    function row(name, passed, failed, seconds) {
      printf "%-62s %6s %6s %4d:%02d\n", name, passed, failed, int(seconds / 60), seconds % 60
    }
    BEGIN { printf "\n%-62s %6s %6s %7s\n", "step", "passed", "failed", "min:s" }
    { row($1 ($5 ? " (beside)" : ""), $2, $3, $4) }
    !$5 && /^build/ { built += $4 }
    END { row("building alone", "", "", built); row("everything", "", "", total); print "" }
    $3 > 0 { failures = failures "failed: " $1 "\n" }
    { passed += $2; failed += $3 }
    END {
      while ((getline line < left_out) > 0) print line
      printf "%s", failures
      while ((getline line < names) > 0) print line
      printf "%d passed, %d failed\n", passed, failed
      exit failed > 0
    }
  ' "$state/table"
}
