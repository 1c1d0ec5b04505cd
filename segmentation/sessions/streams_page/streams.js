const wall = document.getElementById("wall"), summary = document.getElementById("summary");
const cards = new Map();
const milliseconds = (seconds) => seconds === undefined ? "–" : `${Math.round(seconds * 1000)} ms`;
const count = (number) => number.toLocaleString("en");

function figures(one) {
  const lost = Object.values(one.dropped).reduce((sum, value) => sum + value, 0);
  const causes = Object.entries(one.dropped).map(([cause, value]) => `${count(value)} ${cause}`).join(", ");
  return [
    ["frames/s", one.fps.toFixed(1), "over the last 5 seconds"],
    ["p95 delay", milliseconds(one.latency.p95), ["p50", "p99", "max"].map((name) => `${name} ${milliseconds(one.latency[name])}`).join(", ")],
    ["shown", count(one.shown), `of ${count(one.received)} received; ${one.waiting} wait`],
    ["dropped", count(lost), causes || "none"],
  ];
}

function show(card, one) {
  const { article } = card;
  card.state = one.state;
  article.className = one.state;
  article.dataset.name = one.name;
  article.querySelector("b").textContent = one.name;
  article.querySelector("i").textContent = one.state;
  const parts = [one.address === one.name ? "" : one.address, one.width ? `${one.width} × ${one.height}` : "",
    one.reconnects ? `${count(one.reconnects)} reconnects` : ""];
  const [about, error] = article.querySelectorAll(".about");
  about.textContent = about.title = parts.filter(Boolean).join(" · ");
  error.textContent = one.error;
  const shown = figures(one);
  article.querySelector("dl").replaceChildren(...shown.map(([name, value, more]) => {
    const box = element("div", "");
    box.title = more;
    box.append(element("dt", name), element("dd", value));
    return box;
  }));
  const more = shown.map(([name, , more]) => element("li", `${name}: ${more}`));
  article.querySelector("ul").replaceChildren(element("li", about.textContent), ...more);
}

function element(kind, text) {
  const made = document.createElement(kind);
  made.textContent = text;
  return made;
}

function added(name) {
  const article = document.querySelector("template").content.firstElementChild.cloneNode(true);
  const card = { article, state: "", busy: false };
  const image = article.querySelector("img");
  image.onload = () => { image.classList.add("shown"); card.busy = false; };
  image.onerror = () => { card.busy = false; };
  card.look = () => {
    if (card.busy || document.hidden || !["up", "lost"].includes(card.state)) return;
    card.busy = true;
    image.src = `streams/${encodeURIComponent(name)}.jpg?${Date.now()}`;
  };
  cards.set(name, card);
  wall.append(article);
  return card;
}

async function poll() {
  try {
    const answer = await fetch("streams", { signal: AbortSignal.timeout(4000) });
    const streams = await answer.json();
    for (const one of streams) show(cards.get(one.name) ?? added(one.name), one);
    for (const [name, card] of cards) {
      if (streams.some((one) => one.name === name)) continue;
      card.article.remove();
      cards.delete(name);
    }
    const up = streams.filter((one) => one.state === "up").length;
    summary.textContent = `${up} of ${streams.length} up`;
    wall.classList.toggle("few", streams.length < 2);
    document.body.classList.remove("away");
  } catch {
    document.body.classList.add("away");
  }
  setTimeout(poll, 1000);
}

document.getElementById("home").hidden = !location.pathname.endsWith("/live");  // the page is a part of a larger one
poll();
setInterval(() => { for (const card of cards.values()) card.look(); }, 500);
