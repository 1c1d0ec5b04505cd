// Tools on the picture. The keyboard does what the pointer does: arrows move, space presses and lets go, Escape ends.
// Points are shares of the picture's sides.

const canvas = document.getElementById("draw"), stage = document.getElementById("stage");
const painters = [];
let tool = null;
let point = [0.5, 0.5], pressed = false, byKeyboard = false;

export const size = () => [canvas.width, canvas.height];

export function fit(image) {
  const [width, height] = [image.naturalWidth, image.naturalHeight];
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const box = { left: image.offsetLeft, top: image.offsetTop, width: image.clientWidth, height: image.clientHeight };
  for (const [side, pixels] of Object.entries(box)) canvas.style[side] = `${pixels}px`;
  redraw();
}

export function redraw() {
  const context = canvas.getContext("2d");
  context.clearRect(0, 0, ...size());
  for (const paint of painters) paint(context, ...size());
  tool?.paint?.(context, ...size(), point);
  if (tool && byKeyboard) cross(context, point[0] * canvas.width, point[1] * canvas.height);
}

function cross(context, x, y) {
  for (const [color, width] of [["#000", 5], ["#fff", 2]]) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.beginPath();
    context.moveTo(x - 14, y); context.lineTo(x + 14, y);
    context.moveTo(x, y - 14); context.lineTo(x, y + 14);
    context.stroke();
  }
}

export const onPaint = (paint) => painters.push(paint);

// A tool has any of down(point), move(point, pressed), up(point), cancel(), paint(context, width, height, point).
export function addTool(button, made) {
  made.button = button;
  button.setAttribute("aria-pressed", false);
  button.onclick = () => take(tool === made ? null : made);
  return made;
}

export function take(wanted) {
  tool?.button.setAttribute("aria-pressed", false);
  if (pressed) { pressed = false; (tool.cancel ?? tool.up)?.(point); }
  tool = wanted;
  byKeyboard = false;
  tool?.button.setAttribute("aria-pressed", true);
  stage.classList.toggle("tool", tool !== null);
  canvas.tabIndex = tool ? 0 : -1;
  if (tool) canvas.focus({ preventScroll: true });
  redraw();
}

function press(on) {
  if (on === pressed) return;
  pressed = on;
  tool?.[on ? "down" : "up"]?.(point);
  redraw();
}

function move(to) {
  point = to.map((share) => Math.min(1, Math.max(0, share)));
  tool?.move?.(point, pressed);
  redraw();
}

function at(event) {
  const box = canvas.getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}

canvas.onpointerdown = (event) => {
  byKeyboard = false;
  canvas.setPointerCapture(event.pointerId);
  move(at(event));
  press(true);
};
canvas.onpointermove = (event) => { byKeyboard = false; move(at(event)); };
canvas.onpointerup = () => press(false);
canvas.onpointercancel = () => press(false);
canvas.onkeydown = (event) => {
  const step = event.shiftKey ? 0.05 : 0.01, [x, y] = point, down = step * canvas.width / canvas.height;
  const to = { ArrowLeft: [x - step, y], ArrowRight: [x + step, y], ArrowUp: [x, y - down], ArrowDown: [x, y + down] }[event.key];
  if (to) { byKeyboard = true; move(to); }
  else if (event.key === " " || event.key === "Enter") { byKeyboard = true; press(!pressed); }
  else if (event.key === "Escape") { const { button } = tool; take(null); button.focus(); }
  else return;
  event.preventDefault();
};
