// The options of the form, by the names of the API. Those that have their defaults are left out.
import { faceOptions } from "./faces.js";
import { regionTexts } from "./regions.js";

const at = (id) => document.getElementById(id);
let pick = "";

export function options() {
  const cover = at("cover").value, chosen = cover ? covering(cover) : effect();
  for (const name of { "": ["threshold", "feather", "smooth"], people: ["threshold"] }[cover] ?? []) {
    const field = at(name);
    if (field.value !== field.defaultValue) chosen[name] = Number(field.value);
  }
  return chosen;
}

function effect() {
  const chosen = {}, kind = at("effect").value;
  const argument = { blur: at("strength").value, pixelate: at("block").value, color: at("color").value, overlay: at("color").value }[kind];
  chosen.effect = argument === undefined ? kind : `${kind}:${argument}`;
  if (at("model").value !== "person") chosen.model = at("model").value;
  if (at("invert").checked) chosen.invert = true;
  if (pick) chosen.pick = pick;
  return chosen;
}

// Sets the form to the options of a project file.
export function setOptions(given) {
  const [kind, argument] = (given.effect ?? "blur:25").split(":");
  at("cover").value = "";
  at("effect").value = kind;
  const field = { blur: "strength", pixelate: "block", color: "color", overlay: "color" }[kind];
  if (field && argument) at(field).value = argument;
  for (const name of ["threshold", "feather", "smooth"]) at(name).value = given[name] ?? at(name).defaultValue;
  at("model").value = given.model ?? "person";
  at("invert").checked = given.invert ?? false;
  setPick(given.pick ?? "");
  shown();
}

function covering(what) {
  const chosen = { effect: `color:${at("paint").value}` }, region = regionTexts();
  if (what !== "regions" || !region.length) chosen.anonymize = what;
  if (region.length) chosen.region = region;
  if (what === "faces") Object.assign(chosen, faceOptions());
  if (at("mute").checked) chosen.mute = true;
  return chosen;
}

// Returns the earlier choice.
export function setPick(text) {
  const earlier = pick;
  pick = text;
  at("all").hidden = !text;
  at("picked").textContent = text
    ? `One person is chosen, in the frame at ${text.split("@")[1]} s. Other frames show all people here; the render follows the chosen one.`
    : "";
  return earlier;
}

// Whether regions alone are to be covered, and none is drawn yet.
export const undrawn = () => at("cover").value === "regions" && !regionTexts().length;

export const covers = () => at("cover").value !== "";

export function shown() {
  const cover = at("cover").value || "background";
  for (const part of document.querySelectorAll("[data-cover]")) part.hidden = !part.dataset.cover.split(" ").includes(cover);
  at("undrawn").hidden = !undrawn();
  for (const label of document.querySelectorAll("[data-for]")) {
    label.hidden = cover !== "background" || !label.dataset.for.split(" ").includes(at("effect").value);
  }
  for (const label of document.querySelectorAll("#controls label")) {
    const output = label.querySelector("output");
    if (output) output.textContent = label.querySelector("input").value;
  }
}

export function onChange(changed) {
  at("controls").oninput = () => { shown(); changed(); };
  shown();
}
