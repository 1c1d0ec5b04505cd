// Corrections: what the brush adds and removes in some frames, their list, undo, and the project file.
// A layer has a number for each pixel of a small picture: 1 is added, -1 is removed, 0 stays.
import { layerOf, runs } from "./project.js";
import { addTool, redraw } from "./tools.js";

const at = (id) => document.getElementById(id);
const LONGER_SIDE = 640;
const COLORS = { 1: 0x7853c800, "-1": 0x783d3dff };  // alpha, blue, green, red
const layers = new Map();  // by the number of the frame
const lengths = new WeakMap();  // of layers
const past = [];  // [frame, its layer before], for undo
let page = null;  // what this part needs of the page, see `connect` in app.js
let strokes = Promise.resolve();  // those that are done are added one after the other
let shape = [0, 0], input = null, stroke = null, drawn = null;

export const connect = (given) => { page = given; };

export function forgetCorrections(about) {
  input = about;
  const share = Math.min(1, LONGER_SIDE / Math.max(about.width, about.height));
  shape = [Math.max(1, Math.round(about.width * share)), Math.max(1, Math.round(about.height * share))];
  layers.clear();
  past.length = 0;
  list();
}

// The frame's layer; where it has none, what earlier and later corrections have become there.
async function begun(frame) {
  if (layers.has(frame)) return layers.get(frame);
  const layer = new Int8Array(shape[0] * shape[1]);
  if (!layers.size) return layer;
  const image = await createImageBitmap(await page.base());
  const canvas = new OffscreenCanvas(...shape), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0, ...shape);
  const { data } = context.getImageData(0, 0, ...shape);
  return layer.map((_, i) => (data[4 * i] > 200 ? 1 : data[4 * i] < 56 ? -1 : 0));
}

async function add({ frame, layer, of }) {
  const before = await begun(frame);
  if (of !== input) return;  // another video was opened meanwhile
  past.push([frame, layers.get(frame)]);
  set(frame, before.map((old, i) => layer[i] || old));
}

function dab(layer, from, to, value) {
  const radius = Number(at("brush").value) / 200 * Math.min(...shape), steps = Math.ceil(Math.hypot(to[0] - from[0], to[1] - from[1]) * shape[0]) + 1;
  for (let step = 0; step <= steps; step++) {
    const [x, y] = [0, 1].map((side) => (from[side] + (to[side] - from[side]) * step / steps) * shape[side]);
    for (let row = Math.max(0, Math.floor(y - radius)); row <= Math.min(shape[1] - 1, y + radius); row++) {
      for (let column = Math.max(0, Math.floor(x - radius)); column <= Math.min(shape[0] - 1, x + radius); column++) {
        if (Math.hypot(column - x, row - y) <= radius) layer[row * shape[0] + column] = value;
      }
    }
  }
}

function brush(button, value) {
  addTool(button, {
    down(point) {
      stroke = { frame: page.frame(), layer: new Int8Array(shape[0] * shape[1]), last: point };
      dab(stroke.layer, point, point, value);
    },
    move(point, pressed) {
      if (!pressed || !stroke) return;
      dab(stroke.layer, stroke.last, point, value);
      stroke.last = point;
    },
    up() {
      const done = { ...stroke, of: input };
      stroke = null;
      strokes = strokes.then(() => add(done)).catch(page.failed);
    },
    paint(context, width, height, point) {
      drawLayer(context, stroke?.layer ?? layers.get(page.frame()), width, height);
      context.strokeStyle = value > 0 ? "#00c853" : "#ff3d3d";
      context.lineWidth = 2;
      context.beginPath();
      context.arc(point[0] * width, point[1] * height, Number(at("brush").value) / 200 * Math.min(width, height), 0, 7);
      context.stroke();
    },
  });
}

function drawLayer(context, layer, width, height) {
  if (!layer) return;
  const pixels = new ImageData(...shape), words = new Uint32Array(pixels.data.buffer);
  layer.forEach((value, i) => { if (value) words[i] = COLORS[value]; });
  drawn ??= new OffscreenCanvas(1, 1);
  [drawn.width, drawn.height] = shape;
  drawn.getContext("2d").putImageData(pixels, 0, 0);
  context.drawImage(drawn, 0, 0, width, height);
}

brush(at("add"), 1);
brush(at("remove"), -1);

function set(frame, layer) {
  if (layer) layers.set(frame, layer);
  else layers.delete(frame);
  list();
  page.changed();
}

export function undo() {
  if (!past.length) return;
  const [frame, layer] = past.pop();
  if (page.frame() !== frame) page.go(frame);
  set(frame, layer);
}

const corrected = () => [...layers.keys()].sort((a, b) => a - b);

function list() {
  const frames = corrected();
  at("undo").disabled = !past.length;
  at("save").disabled = !frames.length;
  const last = Number(at("time").max) || 1;
  at("marks").replaceChildren(...frames.map((frame) => {
    const mark = document.createElement("i");
    mark.style.left = `${100 * frame / last}%`;
    return mark;
  }));
  at("corrections").replaceChildren(...frames.map((frame) => {
    const row = at("place-in-time").content.firstElementChild.cloneNode(true), [go, remove] = row.querySelectorAll("button");
    go.textContent = `${page.seconds(frame).toFixed(2)} s`;
    go.setAttribute("aria-label", `Go to the correction at ${go.textContent}`);
    go.onclick = () => page.go(frame);
    remove.setAttribute("aria-label", `Remove the correction at ${go.textContent}`);
    remove.onclick = () => { past.push([frame, layers.get(frame)]); set(frame, null); at("undo").focus(); };
    return row;
  }));
  redraw();
}

// The text of a project file; "" without corrections.
export function project(options) {
  if (!layers.size) return "";
  const corrections = corrected().map((frame) => {
    const layer = layers.get(frame);
    if (!lengths.has(layer)) lengths.set(layer, { add: runs(layer, shape, 1), remove: runs(layer, shape, -1) });
    return { time: page.seconds(frame), size: [shape[1], shape[0]], ...lengths.get(layer) };
  });
  return JSON.stringify({ segmentation_project: 1, input: input.name, size: [input.width, input.height], options, corrections });
}

// Takes in a project file, and returns its options.
export function openProject(text) {
  const content = JSON.parse(text);
  if (content?.segmentation_project !== 1) throw new Error("This is no project file.");
  if (String(content.size) !== String([input.width, input.height])) throw new Error(`The project is for ${content.input}, another video.`);
  const read = content.corrections.map((one) => [page.frameAt(one.time), layerOf(one, shape)]);
  layers.clear();
  past.length = 0;
  for (const [frame, layer] of read) layers.set(frame, layer);
  list();
  return content.options;
}
