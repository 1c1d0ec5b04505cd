// The options of the form, by the names of the API. Those that have their defaults are left out.

const at = (id) => document.getElementById(id);
let pick = "";

export function options() {
  const chosen = {}, kind = at("effect").value;
  const argument = { blur: at("strength").value, pixelate: at("block").value, color: at("color").value, overlay: at("color").value }[kind];
  chosen.effect = argument === undefined ? kind : `${kind}:${argument}`;
  for (const name of ["threshold", "feather", "smooth"]) {
    const field = at(name);
    if (field.value !== field.defaultValue) chosen[name] = Number(field.value);
  }
  if (at("model").value !== "person") chosen.model = at("model").value;
  if (at("invert").checked) chosen.invert = true;
  if (pick) chosen.pick = pick;
  return chosen;
}

export function setPick(text, when) {
  pick = text;
  at("all").hidden = !text;
  at("picked").textContent = text
    ? `One person is chosen, in the frame at ${when} s. Other frames show all people here; the render follows the chosen one.`
    : "";
}

function shown() {
  for (const label of document.querySelectorAll("[data-for]")) {
    label.hidden = !label.dataset.for.split(" ").includes(at("effect").value);
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
