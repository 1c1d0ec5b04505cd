// Faces that are chosen with a click: they stay uncovered, or they alone are covered.
import { addTool, take } from "./tools.js";

const at = (id) => document.getElementById(id);
let chosen = [];  // texts X,Y@TIME, in pixels of the upright picture and seconds
let page = null;  // what this part needs of the page, see `connectFaces` in app.js

export function connectFaces(given) {
  page = given;
  addTool(at("face"), {
    async up(point) {
      take(null);
      const text = page.place(point);
      if (chosen.includes(text)) return;
      chosen.push(text);
      list();
      if (await page.changed()) forget(text);  // no face is there
    },
  });
}

export function forgetFaces() {
  chosen = [];
  list();
}

function forget(text) {
  chosen = chosen.filter((one) => one !== text);
  list();
}

// The options by which the run finds them.
export const faceOptions = () => (chosen.length ? { [at("whose").value]: chosen.map((text) => `at ${text}`) } : {});

function list() {
  at("faces").replaceChildren(...chosen.map((text, index) => {
    const row = at("place-in-time").content.firstElementChild.cloneNode(true), [go, remove] = row.querySelectorAll("button");
    const [place, when] = text.split("@");
    go.textContent = `${Number(when).toFixed(2)} s`;
    go.setAttribute("aria-label", `Go to the face at ${place}, ${go.textContent}`);
    go.onclick = () => page.go(Number(when));
    remove.setAttribute("aria-label", `Remove the face at ${place}, ${go.textContent}`);
    remove.onclick = () => {
      forget(text);
      (at("faces").children[Math.min(index, chosen.length - 1)]?.lastElementChild ?? at("face")).focus();
      page.changed();
    };
    return row;
  }));
  at("chosen").hidden = !chosen.length;
}
