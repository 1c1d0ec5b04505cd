// Rectangles that are covered whatever is there: drawn, listed with their times, removed.
import { addTool, onPaint, redraw } from "./tools.js";

const at = (id) => document.getElementById(id);
const regions = [];  // box: left, top, width, height in pixels; from, to: seconds, or ""
let picture = [0, 0], corner = null, changed = () => {};

const text = ({ box, from, to }) => box.join(",") + (from || to ? `@${from}-${to}` : "");

export const regionTexts = () => regions.map(text);

export function forgetRegions(width, height) {
  picture = [width, height];
  regions.length = 0;
  list();
}

export const onRegions = (call) => { changed = call; };

function between([x, y], [left, top]) {
  const edges = [[x, left], [y, top]].map((pair, side) => pair.map((share) => Math.round(share * picture[side])).sort((a, b) => a - b));
  return [edges[0][0], edges[1][0], edges[0][1] - edges[0][0], edges[1][1] - edges[1][0]];
}

addTool(at("region"), {
  down(point) { corner = point; },
  cancel() { corner = null; },
  up(point) {
    const box = between(corner, point);
    corner = null;
    if (Math.min(box[2], box[3]) < 2) return;
    regions.push({ box, from: "", to: "" });
    if (!at("cover").value) at("cover").value = "regions";
    list();
    changed();
  },
  paint(context, width, height, point) {
    if (corner) outline(context, between(corner, point), width, height);
  },
});

function outline(context, [left, top, wide, high], width, height) {
  const [across, down] = [width / picture[0], height / picture[1]];
  for (const [color, line] of [["#000", 4], ["#ffd400", 2]]) {
    context.strokeStyle = color;
    context.lineWidth = line;
    context.strokeRect(left * across, top * down, wide * across, high * down);
  }
}

onPaint((context, width, height) => {
  if (at("cover").value) for (const { box } of regions) outline(context, box, width, height);
});

function list() {
  at("regions").replaceChildren(...regions.map((region, index) => {
    const row = at("place").content.firstElementChild.cloneNode(true);
    const name = `Region ${index + 1}`;
    row.querySelector("b").textContent = `${name}: ${region.box.join(",")}`;
    for (const field of row.querySelectorAll("input")) {
      field.value = region[field.name];
      field.setAttribute("aria-label", `${name}, ${field.name}, in seconds`);
      field.oninput = () => { region[field.name] = field.value; };  // the form looks again
    }
    const button = row.querySelector("button");
    button.setAttribute("aria-label", `Remove ${name.toLowerCase()}`);
    button.onclick = () => {
      regions.splice(index, 1);
      list();
      (at("regions").children[Math.min(index, regions.length - 1)]?.querySelector("button") ?? at("region")).focus();
      changed();
    };
    return row;
  }));
  redraw();
}

