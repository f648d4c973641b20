// The tab "Training" on the page of a task instance.
//
// One module, written by hand: Airflow's page imports it as it is, and provides React. It reads the
// XComs of the task through Airflow's public API, with the session of whoever looks at the page. What
// they contain is untrusted: it is shown as text only, and links lead to http and https only.

const NAME = "Training"; // as in training_tab.py
const { createElement: h, Fragment, useEffect, useId, useRef, useState } = globalThis.React;

const LOOK_EVERY = 10_000;
const MOST_REPLICAS = 512;
const MOST_METRICS = 12;
const MOST_POINTS = 500;
const MOST_DEVICES = 12;
const ENDED = new Set(["success", "failed", "skipped", "upstream_failed", "removed"]);
const WELL = new Set(["Running", "Succeeded", "Completed"]);
const FINAL = new Set(["Succeeded", "Failed", "Gone"]);

// ----- what Airflow knows

/** Reads everything; `problem` says why something is missing. Raises only AbortError. */
async function look(place, signal) {
  const keys = ["job", "log_links", "kftrain"];
  const addresses = [place.instance, ...keys.map(place.xcom)];
  const [instance, ...xcoms] = await Promise.all(addresses.map((each) => get(each, signal)));
  const problem = [instance, ...xcoms].map((each) => each.problem).find(Boolean) ?? "";
  const [job, links, told] = xcoms.map((each) => each.body?.value);
  const [at, address] = [Date.now(), place.instance];
  return { at, address, instance: mapping(instance.body), job, links, told, problem };
}

async function get(address, signal) {
  try {
    const answer = await fetch(address, { headers: { Accept: "application/json" }, signal });
    if (answer.ok) return { body: await answer.json() };
    return { problem: { 401: "signed out", 403: "forbidden", 404: "" }[answer.status] ?? "away" };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { problem: "away" };
  }
}

/** Where the public API has this task instance; Airflow may be served under a path. */
function placeOf({ dagId, runId, taskId, mapIndex }) {
  const index = mapIndex ?? "-1";
  // Iterations of a task loop (Airflow 3.4) differ in nothing else.
  const region = new URLSearchParams();
  for (const [name, value] of new URLSearchParams(location.search))
    if (name === "region_id" || name === "region_index") region.set(name, value);
  const [dag, run, task] = [dagId, runId, taskId].map(encodeURIComponent);
  const path = `api/v2/dags/${dag}/dagRuns/${run}/taskInstances/${task}`;
  const query = region.size ? region : new URLSearchParams({ map_index: index });
  const address = (rest) => new URL(`${path}/${rest}`, document.baseURI).href;
  return {
    instance: address(region.size ? `${index}?${region}` : index),
    xcom: (key) => address(`xcomEntries/${key}?${query}`),
  };
}

// What was read last. It outlives the component, which Airflow's page mounts anew once it has loaded:
// without it the page would be empty again for a moment.
let last = null;

/** What was read last of this task instance. While it may change and somebody looks, it is read again. */
function useFindings(place) {
  const [, redraw] = useState(null);
  useEffect(() => {
    const ending = new AbortController();
    let timer = 0;
    let looking = false;
    const again = async () => {
      clearTimeout(timer);
      if (looking || document.hidden) return;
      looking = true;
      const next = await look(place, ending.signal).catch(() => null); // the page has gone on
      looking = false;
      if (!next) return;
      // What was known stays while Airflow does not answer.
      const known = readOf(place);
      last = next.problem && known ? { ...known, problem: next.problem } : next;
      redraw(last);
      if (mayChange(next)) timer = setTimeout(again, LOOK_EVERY);
    };
    document.addEventListener("visibilitychange", again);
    again();
    return () => {
      ending.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", again);
    };
  }, [place.instance]);
  return readOf(place);
}

const readOf = (place) => (last?.address === place.instance ? last : null);

const mayChange = ({ instance, problem }) =>
  !ENDED.has(instance.state) && problem !== "forbidden" && problem !== "signed out";

// ----- what it means: the readers accept anything

const mapping = (value) =>
  value !== null && typeof value === "object" && !Array.isArray(value) ? value : {};
const list = (value) => (Array.isArray(value) ? value : []);
const text = (value) =>
  typeof value === "string" || typeof value === "number" ? String(value).slice(0, 8000) : "";
const number = (value) => (typeof value === "number" && Number.isFinite(value) ? value : null);
const time = (value) => {
  const found = typeof value === "string" ? Date.parse(value) : NaN;
  return Number.isNaN(found) ? null : found;
};

function webAddress(value) {
  try {
    const url = new URL(text(value));
    return url.protocol === "https:" || url.protocol === "http:" ? url.href : "";
  } catch {
    return "";
  }
}

function readJob(value) {
  const job = mapping(value);
  const [apiVersion, kind, namespace, name, uid] = [
    job.api_version,
    job.kind,
    job.namespace,
    job.name,
    job.uid,
  ].map(text);
  if (!kind || !name) return null;
  return { apiVersion, kind, namespace, name, uid, command: command(apiVersion, kind, namespace, name) };
}

/** A command that shows the job. It will be copied into a shell, so it has nothing else in it. */
function command(apiVersion, kind, namespace, name) {
  const [group, version] = apiVersion.split("/");
  const words = [kind, version ?? "", ...(group ?? "").split("."), namespace, ...name.split(".")];
  if (!words.every((word) => /^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$/.test(word))) return "";
  return `kubectl --namespace ${namespace} describe ${kind.toLowerCase()}.${version}.${group}/${name}`;
}

/** One row per pod: what the task told of it, and the link to its log. */
function readReplicas(told, links) {
  const rows = new Map();
  const row = (value) => {
    const pod = text(mapping(value).pod);
    if (pod && !rows.has(pod) && rows.size < MOST_REPLICAS) {
      const { role, index } = mapping(value);
      const place = [text(role), text(index)].filter(Boolean).join(" ");
      rows.set(pod, { pod, place: place || pod, log: "", phase: "", node: "" });
    }
    return rows.get(pod) ?? {};
  };
  for (const each of list(told).map(mapping))
    Object.assign(row(each), {
      phase: text(each.phase),
      node: text(each.node),
      restarts: number(each.restarts),
      exitCode: number(each.exit_code),
      leads: each.leads === true,
    });
  for (const each of list(links)) row(each).log = webAddress(mapping(each).url);
  return [...rows.values()].sort((one, other) => rank(one) - rank(other));
}

/** The leader comes first, then what needs a look. */
function rank({ leads, phase }) {
  if (leads) return 0;
  return phase === "Failed" ? 1 : WELL.has(phase) ? 3 : 2;
}

function readProgress(value) {
  const told = mapping(value);
  const [step, total] = [number(told.step), number(told.total)];
  const share = number(told.percent) ?? (step !== null && total > 0 ? (100 * step) / total : null);
  const percent = share === null ? null : Math.min(100, Math.max(0, share));
  const latest = mapping(told.latest);
  const curves = mapping(told.metrics);
  const names = [...new Set([...Object.keys(curves), ...Object.keys(latest)])];
  const metrics = names.slice(0, MOST_METRICS).map((name) => {
    const points = list(curves[name])
      .slice(-MOST_POINTS)
      .map((point) => ({ at: time(list(point)[0]), value: number(list(point)[1]) }))
      .filter((point) => point.at !== null && point.value !== null);
    return { name, points, latest: number(latest[name]) ?? points.at(-1)?.value ?? null };
  });
  return {
    step,
    total,
    percent,
    ends: time(told.ends),
    metrics: metrics.filter((each) => each.latest !== null),
  };
}

function readUsage(value) {
  const told = mapping(value);
  const rows = [
    ["Queued", duration(number(told.queued))],
    ["Starting", duration(number(told.starting))],
    ["Running", duration(number(told.running))],
    ["All pods together", duration(number(told.pod_seconds))],
    ...Object.entries(mapping(told.devices))
      .slice(0, MOST_DEVICES)
      .map(([name, used]) => [name, duration(number(used))]),
    ["Restarts", text(told.restarts)],
    ["Retries by the system", text(told.system_retries)],
  ];
  return { rows: rows.filter(([, said]) => said), unseen: text(told.unseen) };
}

/** All that is shown of what was found. */
function readTraining(found) {
  const job = readJob(found.job);
  const claimed = mapping(found.told);
  // A trigger of an earlier try may have written late.
  const told = job && claimed.uid === job.uid ? claimed : {};
  const queue = mapping(told.queue);
  return {
    job,
    phase: text(told.phase),
    since: time(told.since),
    written: time(told.written),
    finished: time(told.finished),
    headline: text(told.headline),
    queue: { name: text(queue.name), words: text(queue.words) },
    replicas: readReplicas(told.replicas, job ? found.links : []),
    progress: readProgress(told.progress),
    usage: readUsage(told.usage),
  };
}

// ----- how it is written

/** In the time zone that is set in Airflow's pages. */
function clock(at) {
  let zone;
  try {
    zone = JSON.parse(localStorage.getItem("timezone") ?? "null") ?? undefined;
  } catch {
    zone = localStorage.getItem("timezone");
  }
  const format = (timeZone) =>
    // The Swedish way to write a time is that of Airflow.
    new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium", timeZone });
  try {
    return format(zone).format(at);
  } catch {
    return format().format(at);
  }
}

/** The two largest units of a number of seconds. */
function duration(seconds) {
  if (seconds === null || seconds < 0) return "";
  if (seconds < 10) return `${Math.round(10 * seconds) / 10} s`;
  const whole = Math.round(seconds);
  const units = [
    ["d", Math.floor(whole / 86400)],
    ["h", Math.floor(whole / 3600) % 24],
    ["min", Math.floor(whole / 60) % 60],
    ["s", whole % 60],
  ];
  const first = units.findIndex(([, count]) => count > 0);
  return units
    .slice(first, first + 2)
    .filter(([, count]) => count > 0)
    .map(([unit, count]) => `${count} ${unit}`)
    .join(" ");
}

const between = (start, end) => duration(Math.max(0, (end - start) / 1000));

function amount(value) {
  const size = Math.abs(value);
  if (size && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  return new Intl.NumberFormat("en", { maximumSignificantDigits: size < 1e3 ? 4 : 8 }).format(value);
}

// ----- the parts of the page

function Time({ at }) {
  if (at === null) return null;
  const exact = new Date(at).toISOString();
  return h("time", { dateTime: exact, title: exact }, clock(at));
}

function Section({ title, note, children }) {
  const id = useId();
  return h(
    "section",
    { "aria-labelledby": id },
    h("h3", { id }, title, note ? h("span", { className: "note" }, note) : null),
    children,
  );
}

function Facts({ rows }) {
  return h(
    "dl",
    null,
    rows.map(([name, said]) => h("div", { key: name }, h("dt", null, name), h("dd", null, said))),
  );
}

// The names of Airflow's states, whose colours are used.
const COLOURS = new Map([
  ["Queued", "queued"],
  ["Pending", "queued"],
  ["Starting", "scheduled"],
  ["Running", "running"],
  ["Restarting", "up_for_retry"],
  ["Succeeded", "success"],
  ["Completed", "success"],
  ["Failed", "failed"],
]);
const colour = (phase) => `var(--chakra-colors-${COLOURS.get(phase) ?? "none"}-solid, currentColor)`;

function Phase({ phase }) {
  const dot = { className: "dot", style: { background: colour(phase) }, "aria-hidden": true };
  return h("span", { className: "phase" }, h("span", dot), phase);
}

function State({ training, over, state, at }) {
  const { phase, since, finished, written } = training;
  const ended = FINAL.has(phase);
  const last = over && phase && !ended; // marked as failed or succeeded by hand, for example
  return h(
    "div",
    { className: "state" },
    h("span", { className: "word", role: "status" }, h(Phase, { phase: phase || "Unknown" })),
    since !== null &&
      h(
        "span",
        { className: "muted" },
        ended ? "at " : "since ",
        h(Time, { at: ended ? (finished ?? since) : since }),
        ended || last ? "" : ` (${between(since, at)})`,
      ),
    last && h("span", { className: "muted" }, `Last known; the task has ended since then (${state}).`),
    !ended && written !== null && h("span", { className: "muted as-of" }, "as of ", h(Time, { at: written })),
  );
}

function Queue({ queue: { name, words } }) {
  const title = name ? `Queue ${name}` : "Queue";
  return h(Section, { title }, h("p", null, words || "No reason given yet."));
}

function Progress({ progress, phase, running, at }) {
  const { step, total, percent, ends } = progress;
  const known = percent !== null;
  const steps = step === null ? "" : `Step ${amount(step)}${total === null ? "" : ` of ${amount(total)}`}`;
  const share = known ? `${amount(Math.round(10 * percent) / 10)} %` : "";
  const bar = {
    role: "progressbar",
    "aria-label": "Progress of the training",
    "aria-valuemin": 0,
    "aria-valuemax": 100,
    "aria-valuenow": known ? percent : undefined,
    "aria-valuetext": [share, steps].filter(Boolean).join(", "),
  };
  const done = { width: `${percent}%`, background: FINAL.has(phase) ? colour(phase) : undefined };
  return h(
    Section,
    { title: "Progress", note: share },
    known && h("div", { className: "bar", ...bar }, h("div", { style: done })),
    h(
      "p",
      { className: "ends muted" },
      h("span", null, steps),
      running && ends !== null
        ? h(
            "span",
            null,
            "Ends at about ",
            h(Time, { at: ends }),
            ends > at ? ` (in ${between(at, ends)})` : "",
          )
        : null,
    ),
  );
}

const WIDE = 240;
const HIGH = 72;

/** The points of a curve in the picture's own units. */
function placed(points) {
  const [times, values] = [points.map((each) => each.at), points.map((each) => each.value)];
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return points.map(({ at, value }) => ({
    x: last > first ? (WIDE * (at - first)) / (last - first) : WIDE / 2,
    y: high > low ? 3 + ((HIGH - 6) * (high - value)) / (high - low) : HIGH / 2,
  }));
}

function Curve({ metric }) {
  const { name, latest } = metric;
  const points = [...metric.points].sort((one, other) => one.at - other.at);
  const [chosen, setChosen] = useState(null);
  const values = points.map((each) => each.value);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const marks = placed(points);
  const at = chosen === null ? null : Math.min(chosen, points.length - 1);
  const point = at === null ? undefined : points[at];
  const nearest = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const x = (WIDE * (event.clientX - box.left)) / box.width;
    const away = marks.map((mark) => Math.abs(mark.x - x));
    setChosen(away.indexOf(Math.min(...away)));
  };
  const keys = (event) => {
    const way = { ArrowLeft: -1, ArrowRight: 1, Home: -points.length, End: points.length }[event.key];
    if (way === undefined) return;
    event.preventDefault();
    const from = at ?? points.length - 1;
    setChosen(Math.min(points.length - 1, Math.max(0, from + way)));
  };
  const read = points[at ?? points.length - 1];
  // A slider is what can be read value by value, with the keyboard and by a screen reader.
  const slider = points.length && {
    role: "slider",
    tabIndex: 0,
    "aria-label":
      `${name}: ${points.length} values from ${clock(points[0].at)} to ${clock(points.at(-1).at)}, ` +
      `lowest ${amount(low)}, highest ${amount(high)}`,
    "aria-valuemin": 1,
    "aria-valuemax": points.length,
    "aria-valuenow": (at ?? points.length - 1) + 1,
    "aria-valuetext": `${amount(read.value)} at ${clock(read.at)}`,
  };
  const mark = (point || points.length === 1) && marks[at ?? 0];
  return h(
    "figure",
    null,
    h("figcaption", null, h("span", { title: name }, name), h("b", null, amount(point?.value ?? latest))),
    points.length > 0 &&
      h(
        "div",
        {
          className: "curve",
          ...slider,
          onPointerMove: nearest,
          onPointerLeave: () => setChosen(null),
          onBlur: () => setChosen(null),
          onKeyDown: keys,
        },
        h(
          "svg",
          { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": true },
          points.length > 1 &&
            h("path", { className: "below", d: `M0 ${HIGH} L${joined(marks)} L${WIDE} ${HIGH} Z` }),
          points.length > 1 && h("path", { className: "line", d: `M${joined(marks)}` }),
          point && h("path", { className: "at", d: `M${mark.x} 0 V${HIGH}` }),
        ),
        mark && h("span", { className: "mark", style: { left: of(mark.x, WIDE), top: of(mark.y, HIGH) } }),
      ),
    points.length > 0 &&
      h(
        "p",
        { className: "muted" },
        point
          ? h("span", null, "at ", h(Time, { at: point.at }))
          : [
              h("span", { key: "low" }, `lowest ${amount(low)}`),
              h("span", { key: "high" }, `highest ${amount(high)}`),
            ],
      ),
  );
}

const of = (part, whole) => `${(100 * part) / whole}%`;
const joined = (marks) => marks.map(({ x, y }) => `${x.toFixed(1)} ${y.toFixed(1)}`).join(" L");

const Place = ({ place, leads }) =>
  h(
    Fragment,
    null,
    place,
    leads && h("span", { className: "leads", title: "Its log and its result are the task's." }, "leader"),
  );

function Log({ log, place }) {
  const link = { href: log, target: "_blank", rel: "noopener noreferrer", "aria-label": `Log of ${place}` };
  return h("a", link, "Log");
}

// What a cell contains, and how it is shown if that is not plain text.
const COLUMNS = [
  { name: "Replica", value: (row) => row.place, show: Place },
  { name: "State", value: (row) => row.phase, show: Phase },
  { name: "Exit code", value: (row) => text(row.exitCode), kind: "number" },
  { name: "Restarts", value: (row) => text(row.restarts), kind: "number" },
  { name: "Node", value: (row) => row.node },
  { name: "Pod", value: (row) => row.pod, show: ({ pod }) => h("code", null, pod) },
  { name: "Log", value: (row) => row.log, show: Log },
];

function Replicas({ replicas }) {
  const columns = COLUMNS.filter(({ value }) => replicas.some(value));
  const counts = new Map();
  for (const { phase } of replicas) if (phase) counts.set(phase, (counts.get(phase) ?? 0) + 1);
  const note = [...counts].map(([phase, count]) => `${count} ${phase}`).join(", ");
  const cell = (row, { name, value, kind, show }) =>
    h("td", { key: name, className: kind }, value(row) && show ? h(show, row) : value(row));
  const head = ({ name, kind }) => h("th", { key: name, scope: "col", className: kind }, name);
  const line = (row) =>
    h(
      "tr",
      { key: row.pod },
      columns.map((column) => cell(row, column)),
    );
  return h(
    Section,
    { title: "Replicas", note },
    h(
      "div",
      { className: "rows", role: "region", tabIndex: 0, "aria-label": "Replicas" },
      h(
        "table",
        null,
        h("thead", null, h("tr", null, columns.map(head))),
        h("tbody", null, replicas.map(line)),
      ),
    ),
  );
}

function Job({ job }) {
  const { kind, namespace, name } = job;
  const rows = [
    ["Kind", kind],
    ["Namespace", namespace],
    ["Name", h("code", null, name)],
  ];
  return h(
    Section,
    { title: "Job" },
    h(Facts, { rows }),
    job.command && h(Command, { command: job.command }),
  );
}

function Command({ command }) {
  const [copied, setCopied] = useState(false);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async () => {
    await navigator.clipboard.writeText(command);
    setCopied(true);
    timer.current = setTimeout(() => setCopied(false), 2000);
  };
  return h(
    "div",
    { className: "command" },
    h("code", { tabIndex: 0 }, command),
    // Browsers have it only where the connection is safe.
    navigator.clipboard && h("button", { type: "button", onClick: copy }, copied ? "Copied" : "Copy"),
    h("span", { className: "hidden", role: "status" }, copied ? "Copied" : ""),
  );
}

const PROBLEMS = {
  forbidden:
    "You may not read the XComs of this Dag, and all that this page shows is in them. Whoever " +
    "manages Airflow can give you the right to read XComs.",
  "signed out": "Your session has ended. Reload the page to sign in again.",
  away: "Airflow's API server does not answer. The page asks it again every 10 seconds.",
};

/** Why there is nothing to show. */
function Nothing({ state }) {
  const [title, more] =
    state === null || state === undefined || ["scheduled", "queued", "none"].includes(state)
      ? ["The task has not started yet", "Its job shows here as soon as the task has created it."]
      : ENDED.has(state)
        ? [
            "This try has no training job",
            "The task has created none, its XComs have been cleared, or an XCom backend keeps them " +
              "elsewhere.",
          ]
        : ["There is no training job yet", "It shows here as soon as the task has created it."];
  return h("div", { className: "nothing" }, h("p", null, title), h("p", { className: "muted" }, more));
}

/** The page shows one try, and the XComs are those of the latest. */
function OtherTry({ latest }) {
  const asked = Number(new URLSearchParams(location.search).get("try_number"));
  if (!asked || !latest || asked === latest) return null;
  return h(
    "p",
    { className: "hint", role: "note" },
    `This is try ${latest}, the latest: Airflow deletes the XComs of earlier tries. The log of try ` +
      `${asked} has its report.`,
  );
}

function Details({ training, found }) {
  const { job, phase, queue, progress, replicas, usage, headline } = training;
  const state = found.instance.state;
  const over = ENDED.has(state);
  const at = found.at;
  const running = !over && !FINAL.has(phase);
  const hasProgress = progress.percent !== null || progress.step !== null;
  return h(
    Fragment,
    null,
    phase
      ? h(State, { training, over, state, at })
      : h(
          "p",
          { className: "hint" },
          over
            ? "The task has not told how its job went: it may have run under an older version of " +
                "airflow-kftrain. Its log says more."
            : "The task has created its job, and has not told more of it yet.",
        ),
    headline && h("div", { className: "headline", role: "note", "aria-label": "Why it failed" }, headline),
    running && (queue.name || queue.words) && h(Queue, { queue }),
    hasProgress && h(Progress, { progress, phase, running, at }),
    progress.metrics.length > 0 &&
      h(
        Section,
        { title: "Metrics" },
        h(
          "div",
          { className: "curves" },
          progress.metrics.map((metric) => h(Curve, { key: metric.name, metric })),
        ),
      ),
    replicas.length > 0 && h(Replicas, { replicas }),
    usage.rows.length > 0 &&
      h(
        Section,
        { title: "Usage", note: "of this try" },
        h(Facts, { rows: usage.rows }),
        usage.unseen && h("p", { className: "muted" }, usage.unseen),
      ),
    h(Job, { job }),
  );
}

function Training(props) {
  const found = useFindings(placeOf(props));
  const training = found && readTraining(found);
  const empty = found && !training.job;
  return h(
    "div",
    { className: "kftrain", "aria-busy": !found },
    h("style", null, STYLE),
    found?.problem && h("p", { className: "hint", role: "alert" }, PROBLEMS[found.problem]),
    found && h(OtherTry, { latest: number(found.instance.try_number) }),
    !found && h("p", { className: "muted" }, "Loading…"),
    empty && !found.problem && h(Nothing, { state: found.instance.state }),
    training?.job && h(Details, { training, found }),
  );
}

// ----- how it looks: Airflow's colours and measures, so that it follows its theme

const STYLE = `
.kftrain {
  --fg: var(--chakra-colors-fg, CanvasText);
  --muted: var(--chakra-colors-fg-muted, GrayText);
  --line: var(--chakra-colors-border, #8884);
  --soft: var(--chakra-colors-bg-muted, #8881);
  --accent: var(--chakra-colors-fg-info, #2b6cb0);
  --mono: var(--chakra-fonts-mono, monospace);
  color: var(--fg); font-size: 0.875rem; line-height: 1.4; max-width: 72rem; padding: 0.75rem 0.5rem 2rem;
  display: flex; flex-direction: column; gap: 1.5rem;
}
.kftrain p { margin: 0; overflow-wrap: anywhere; }
.kftrain h3 { font-size: 0.875rem; font-weight: 600; margin: 0 0 0.5rem; }
.kftrain .note { color: var(--muted); font-weight: 400; margin-left: 0.75rem; }
.kftrain .muted { color: var(--muted); }
.kftrain code { font-family: var(--mono); font-size: 0.8125rem; }
.kftrain time, .kftrain b, .kftrain td, .kftrain dd { font-variant-numeric: tabular-nums; }
.kftrain a { color: var(--accent); }
.kftrain a:hover { text-decoration: underline; }
.kftrain :focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.kftrain .hidden {
  clip-path: inset(50%); height: 1px; overflow: hidden; position: absolute; white-space: nowrap;
  width: 1px;
}

.kftrain .as-of { margin-left: auto; }
.kftrain .state { align-items: baseline; display: flex; flex-wrap: wrap; gap: 0.25rem 0.75rem; }
.kftrain .word { font-size: 1.125rem; font-weight: 600; }
.kftrain .phase { align-items: center; display: inline-flex; gap: 0.5rem; vertical-align: top; }
.kftrain .dot { border-radius: 50%; flex: none; height: 0.625rem; width: 0.625rem; }

.kftrain .hint, .kftrain .headline {
  background: var(--soft); border-left: 3px solid var(--line); padding: 0.625rem 0.75rem;
}
.kftrain .headline {
  border-left-color: var(--chakra-colors-failed-solid, #c53030); font-family: var(--mono);
  font-size: 0.8125rem; margin-top: -0.75rem; overflow-wrap: anywhere; white-space: pre-wrap;
}
.kftrain .nothing { padding: 2rem 0; text-align: center; }
.kftrain .nothing p:first-child { font-weight: 600; margin-bottom: 0.25rem; }

.kftrain .bar {
  background: var(--soft); border-radius: 0.25rem; box-shadow: inset 0 0 0 1px var(--line);
  height: 0.5rem; overflow: hidden;
}
.kftrain .bar > div { background: var(--accent); height: 100%; transition: width 0.3s; }
.kftrain .ends {
  display: flex; flex-wrap: wrap; gap: 0 1rem; justify-content: space-between; margin-top: 0.375rem;
}

.kftrain .curves {
  display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 15rem), 1fr));
}
.kftrain figure {
  border: 1px solid var(--line); border-radius: 0.375rem; margin: 0; min-width: 0;
  padding: 0.625rem 0.75rem;
}
.kftrain figcaption, .kftrain figure p { display: flex; gap: 0.75rem; justify-content: space-between; }
.kftrain figcaption span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.kftrain figure p { font-size: 0.75rem; }
.kftrain .curve { cursor: crosshair; margin: 0.5rem 0 0.375rem; position: relative; }
.kftrain .curve svg { display: block; height: 4.5rem; overflow: visible; width: 100%; }
.kftrain .line {
  fill: none; stroke: var(--accent); stroke-linejoin: round; stroke-width: 1.5;
  vector-effect: non-scaling-stroke;
}
.kftrain .below { fill: var(--accent); opacity: 0.1; }
.kftrain .at { stroke: var(--muted); stroke-width: 1; vector-effect: non-scaling-stroke; }
.kftrain .mark {
  background: var(--accent); border-radius: 50%; height: 7px; margin: -3.5px 0 0 -3.5px;
  pointer-events: none; position: absolute; width: 7px;
}

.kftrain .rows { max-height: 26rem; overflow: auto; }
.kftrain table { border-collapse: collapse; width: 100%; }
.kftrain th, .kftrain td {
  border-bottom: 1px solid var(--line); padding: 0.375rem 1.25rem 0.375rem 0; text-align: left;
  vertical-align: middle; white-space: nowrap;
}
.kftrain th {
  background: var(--chakra-colors-bg, Canvas); color: var(--muted); font-weight: 500; position: sticky;
  top: 0;
}
.kftrain .number { text-align: right; }
.kftrain .leads {
  background: var(--soft); border: 1px solid var(--line); border-radius: 0.25rem; color: var(--muted);
  font-size: 0.75rem; margin-left: 0.5rem; padding: 0 0.375rem;
}

.kftrain dl + p { margin-top: 0.375rem; }
.kftrain dl {
  display: grid; gap: 0.75rem 1.5rem;
  grid-template-columns: repeat(auto-fill, minmax(9rem, max-content)); margin: 0;
}
.kftrain dt { color: var(--muted); font-size: 0.75rem; }
.kftrain dd { margin: 0; overflow-wrap: anywhere; }
.kftrain .command {
  align-items: center; background: var(--soft); border: 1px solid var(--line); border-radius: 0.375rem;
  display: flex; gap: 0.75rem; margin-top: 0.75rem; padding: 0.25rem 0.25rem 0.25rem 0.75rem;
}
.kftrain .command code { flex: 1; overflow-x: auto; padding: 0.25rem 0; white-space: nowrap; }
.kftrain .command button {
  border-radius: 0.25rem; color: var(--muted); cursor: pointer; min-width: 4.5rem;
  padding: 0.25rem 0.5rem;
}
.kftrain .command button:hover { background: var(--line); color: var(--fg); }
@media (prefers-reduced-motion: reduce) { .kftrain .bar > div { transition: none; } }
`;

globalThis[NAME] = Training;
