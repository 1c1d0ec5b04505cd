// The list of renders, which the server sends whenever it changes.
import { remove } from "./api.js";

const at = (id) => document.getElementById(id);
const rows = new Map();
const begun = new Map();  // of jobs that run: when frames were first seen, and how many

function about(job) {
  if (job.state === "done") return `${job.frames} frames${job.complete ? "" : "; frames of the input were damaged or missing"}`;
  if (job.state !== "running" || !job.frames) return "";
  if (!begun.has(job.id)) begun.set(job.id, [performance.now(), job.frames]);
  const [since, before] = begun.get(job.id);
  const rate = (job.frames - before) / ((performance.now() - since) / 1000);
  const of = job.expected ? ` of ${job.expected}` : "";
  if (!(rate > 0)) return `${job.frames}${of} frames`;
  const left = job.expected ? `, ${Math.ceil((job.expected - job.frames) / rate)} s left` : "";
  return `${job.frames}${of} frames, ${rate.toFixed(1)} frames/s${left}`;
}

// What is done to the input, by which renders of one file differ.
const effect = ({ anonymize, region, effect }) => (anonymize ? `${anonymize} covered` : region ? "regions covered" : effect ?? "");

function row(job, say) {
  const made = at("job").content.firstElementChild.cloneNode(true);
  made.querySelector("button").onclick = () => remove(`/api/jobs/${job.id}`).catch((error) => say(error.message));
  rows.set(job.id, made);
  return made;
}

function fill(made, job) {
  made.className = job.state;
  made.dataset.id = job.id;
  made.querySelector("b").textContent = job.name;
  made.querySelector("i").textContent = job.state;
  const bar = made.querySelector("progress");
  bar.hidden = job.state !== "running";
  if (job.expected) bar.value = job.frames / job.expected;
  else bar.removeAttribute("value");
  made.querySelector("p").textContent = job.error ?? [effect(job.options), about(job)].filter(Boolean).join(", ");
  const link = made.querySelector("a");
  link.hidden = !job.output;
  link.href = `/api/jobs/${job.id}/output`;
  link.setAttribute("aria-label", `Download ${job.output ?? ""}`);
  const button = made.querySelector("button");
  button.textContent = job.under_way ? "Cancel" : "Remove";
  button.setAttribute("aria-label", `${button.textContent} ${job.name}`);
}

export function showJobs(say) {
  const events = new EventSource("/api/events");
  events.onmessage = (event) => {
    const jobs = JSON.parse(event.data);
    const wanted = jobs.map((job) => { const made = rows.get(job.id) ?? row(job, say); fill(made, job); return made; });
    for (const [id, made] of rows) if (!wanted.includes(made)) { made.remove(); rows.delete(id); }
    wanted.forEach((made, index) => { if (at("jobs").children[index] !== made) at("jobs").insertBefore(made, at("jobs").children[index] ?? null); });
    at("none").hidden = jobs.length > 0;
    document.body.dataset.connected = "yes";
  };
  events.onerror = () => { document.body.dataset.connected = "no"; };
  events.onopen = () => { document.body.dataset.connected = "yes"; };
}
