// The page: one input, one frame of it with the options, and the renders.
import { get, post, upload } from "./api.js";
import { connect, forgetCorrections, openProject, project, undo } from "./brush.js";
import { covers, options, onChange, setOptions, setPick, shown as showControls, undrawn } from "./controls.js";
import { connectFaces, forgetFaces } from "./faces.js";
import { showJobs } from "./jobs.js";
import { forgetRegions, onRegions } from "./regions.js";
import { addTool, fit, redraw, take as takeTool } from "./tools.js";

const at = (id) => document.getElementById(id);
const stage = at("stage"), result = at("result"), before = at("before"), time = at("time"), message = at("message");
let input = null;  // as the server describes it
let asking = null;  // the request of the frame that is wanted now
let playing = null;  // the play that is under way

export const say = (text) => { message.textContent = text; };
const seconds = () => (input.rate ? Number(time.value) / input.rate : 0);
const corrections = () => (covers() ? "" : project(options()));
const view = () => undrawn() ? "input" : document.querySelector("[name=view]:checked").value;

async function rendered(shown, signal) {
  const fields = { source: input.id, time: seconds(), view: shown, width: playing ? 640 : 1280 };
  if (shown !== "input") Object.assign(fields, { options: options(), project: corrections() });
  return (await post("/api/frames", fields, signal)).blob();
}

async function picture(image, shown, signal) {
  const blob = await rendered(shown, signal);
  if (signal.aborted) return;
  URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(blob);
  await image.decode();
}

// Shows the frame. Returns the message of what failed.
async function look() {
  if (!input) return "";
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  at("clock").textContent = `${seconds().toFixed(2)} s`;
  at("render").disabled = at("told").hidden = undrawn();
  const waiting = setTimeout(() => { at("busy").textContent = "working"; }, 400);
  try {
    await picture(result, view(), signal);
    if (at("compare").value > 0) await picture(before, "input", signal);
    if (!playing && !undrawn()) {
      const { command } = await (await post("/api/command", { name: input.name, options: options(), project: corrections() && "yes" }, signal)).json();
      at("command").textContent = command;
    }
    say("");
    stage.dataset.shown = Number(stage.dataset.shown ?? 0) + 1;
  } catch (error) {
    if (error.name === "AbortError") return "";
    stop();
    say(error.message);
    return error.message;
  } finally {
    clearTimeout(waiting);
    if (!signal.aborted) at("busy").textContent = "";
  }
  return "";
}

function stop() {
  playing = null;
  at("play").textContent = "▶";
  at("play").setAttribute("aria-label", "Play");
}

// At the video's own speed: as many frames as the server makes in the time.
async function play() {
  const mine = playing = {}, begun = performance.now(), last = Number(time.max);
  const from = Number(time.value) < last ? Number(time.value) : 0;
  at("play").textContent = "❚❚";
  at("play").setAttribute("aria-label", "Pause");
  while (playing === mine) {
    time.value = Math.min(last, from + Math.floor((performance.now() - begun) / 1000 * input.rate));
    before.removeAttribute("src");
    redraw();
    await look();
    if (Number(time.value) === last) stop();
  }
  look();
}

let soon = 0;
function lookSoon() {
  clearTimeout(soon);
  soon = setTimeout(look, 60);
}

async function show(id) {
  try {
    input = await get(`/api/inputs/${id}`);
  } catch (error) {
    return say(error.message);
  }
  const last = Math.max(0, Math.round(input.seconds * input.rate) - 1);
  time.max = last;
  time.value = 0;
  at("scrub").hidden = at("pick").hidden = at("who").hidden = at("correct").hidden = !input.rate;
  stop();
  takeTool(null);
  forgetCorrections(input);
  forgetFaces();
  forgetRegions(input.width, input.height);
  at("render").disabled = at("region").hidden = false;
  setPick("");
  before.removeAttribute("src");
  stage.classList.remove("empty");
  document.title = input.name;
  look();
}

async function take(file) {
  say("");
  at("drop").textContent = `Uploading ${file.name}`;
  try {
    const one = await upload(file, (part) => { at("drop").textContent = `Uploading ${file.name}: ${Math.round(100 * part)} %`; });
    await list();
    at("inputs").value = one.id;
    await show(one.id);
  } catch (error) {
    say(error.message);
  }
  at("drop").textContent = "Drop a video or a picture here.";
}

async function list() {
  const all = await get("/api/inputs");
  const choices = all.map((one) => new Option(one.name, one.id));
  at("inputs").replaceChildren(new Option("choose", "", true), ...choices);
  at("shown").hidden = !all.length;
}

function compare() {
  const part = at("compare").value;
  before.style.setProperty("--part", `${part}%`);
  const edge = at("edge"), box = result.getBoundingClientRect(), around = stage.getBoundingClientRect();
  edge.style.display = part > 0 ? "block" : "none";
  edge.style.left = `${box.left - around.left + box.width * part / 100 - 1}px`;
  edge.style.top = `${box.top - around.top}px`;
  edge.style.height = `${box.height}px`;
  if (part > 0 && !before.src) look();
  fit(result);
}

// A point of the picture now, as --pick and --except name it.
const place = ([x, y]) => `${Math.round(x * input.width)},${Math.round(y * input.height)}@${seconds().toFixed(3)}`;

addTool(at("pick"), {
  async up(point) {
    takeTool(null);
    const earlier = setPick(place(point));
    if (await look()) setPick(earlier);  // nobody is there
  },
});
connectFaces({ place, go: (when) => goTo(Math.round(when * input.rate)), changed: look });

function goTo(frame) {
  time.value = frame;
  time.dispatchEvent(new Event("input"));
}
const step = (by) => goTo(Number(time.value) + by);

at("choose").onclick = () => at("file").click();
at("file").onchange = () => { if (at("file").files[0]) take(at("file").files[0]); };
at("inputs").onchange = () => { if (at("inputs").value) show(at("inputs").value); };
document.ondragover = (event) => { event.preventDefault(); stage.classList.add("over"); };
document.ondragleave = () => stage.classList.remove("over");
document.ondrop = (event) => {
  event.preventDefault();
  stage.classList.remove("over");
  if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]);
};
at("play").onclick = () => (playing ? stop() : play());
time.oninput = () => { stop(); before.removeAttribute("src"); redraw(); lookSoon(); };
at("back").onclick = () => step(-1);
at("forward").onclick = () => step(1);
at("views").onchange = look;
at("compare").oninput = compare;
new ResizeObserver(compare).observe(result);
at("all").onclick = () => { setPick(""); look(); };
at("controls").onsubmit = async (event) => {
  event.preventDefault();
  try {
    await post("/api/jobs", { source: input.id, options: options(), project: corrections() });
  } catch (error) {
    say(error.message);
  }
};
connect({
  frame: () => Number(time.value),
  frameAt: (when) => Math.round(when * input.rate),
  seconds: (frame) => frame / input.rate,
  go: goTo,
  base: () => rendered("correction"),
  changed: look,
  failed: (error) => say(error.message),
});
at("undo").onclick = undo;
document.onkeydown = (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "z" && event.target.type !== "number") { event.preventDefault(); undo(); }
};
at("save").onclick = () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([project(options())], { type: "application/json" }));
  link.download = `${input.name.replace(/^.*\//, "").replace(/\.[^.]*$/, "")}.project.json`;
  link.click();
  URL.revokeObjectURL(link.href);
};
at("open").onclick = () => at("opened").click();
at("opened").onchange = async () => {
  const [file] = at("opened").files;
  at("opened").value = "";
  if (!file) return;
  try {
    setOptions(openProject(await file.text()));
    look();
  } catch (error) {
    say(`${file.name}: ${error.message}`);
  }
};
at("copy").onclick = () => navigator.clipboard.writeText(at("command").textContent);
at("render").disabled = true;
at("scrub").hidden = at("pick").hidden = at("who").hidden = at("region").hidden = at("correct").hidden = true;
onChange(lookSoon);
onRegions(() => { showControls(); look(); });
list();
showJobs(say);
