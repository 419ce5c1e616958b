"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const canvas = $("canvas");
if (!canvas || !data.nodes) return;

// ---- the data, unpacked ----------------------------------------------------------------------
const bytes = text => Uint8Array.from(atob(text), c => c.charCodeAt(0)).buffer;
const N = data.nodes, u16 = t => new Uint16Array(bytes(t)), u32 = t => new Uint32Array(bytes(t));
const quantised = u16(data.position), X = new Float32Array(N), Y = new Float32Array(N);
for (let i = 0; i < N; i++) {
  X[i] = data.box[0] + quantised[2 * i] / 65535 * data.box[2];
  Y[i] = data.box[1] + quantised[2 * i + 1] / 65535 * data.box[2];
}
const community = u16(data.community), kind = new Uint8Array(bytes(data.kind));
const weightOf = new Uint8Array(bytes(data.size)), mode = data.mode ? u16(data.mode) : null;
const time = data.time ? new Float64Array(bytes(data.time)) : null;
const textOf = data.text_of ? u32(data.text_of) : null;
const text = i => data.texts[textOf ? textOf[i] : i];
const E = data.edges.count, S = u32(data.edges.source), T = u32(data.edges.target);
const W = new Float32Array(bytes(data.edges.weight)), type = new Uint8Array(bytes(data.edges.type));
const frontier = new Uint8Array(N), linked = new Uint8Array(N);
data.frontiers.forEach(i => { frontier[i] = 1; });
data.bridges.forEach(b => { linked[b[0]] = linked[b[1]] = 1; });
// What is to be fitted into the view: the discs, with room for their names.
const extent = [Infinity, Infinity, -Infinity, -Infinity];
data.communities.forEach(c => {
  if (!c.size) return;
  const r = c.r + .6;
  extent[0] = Math.min(extent[0], c.x - r); extent[1] = Math.min(extent[1], c.y - r);
  extent[2] = Math.max(extent[2], c.x + r); extent[3] = Math.max(extent[3], c.y + r);
});
const large = N > 1500, isConcept = i => data.kinds[kind[i]] === "concept";
const concepts = kind.some((_, i) => isConcept(i));

// Edges of each node, strongest first: they are sent in that order.
const first = new Uint32Array(N + 1);
for (let e = 0; e < E; e++) { first[S[e] + 1]++; if (T[e] !== S[e]) first[T[e] + 1]++; }
for (let i = 0; i < N; i++) first[i + 1] += first[i];
const edgesOf = new Uint32Array(first[N]), fill = first.slice();
for (let e = 0; e < E; e++) { edgesOf[fill[S[e]]++] = e; if (T[e] !== S[e]) edgesOf[fill[T[e]]++] = e; }

// A grid that finds the node at a place.
const cell = Math.max(1, data.box[2] / 256), across = Math.ceil(data.box[2] / cell) + 1;
const cellOf = (x, y) => Math.floor((y - data.box[1]) / cell) * across + Math.floor((x - data.box[0]) / cell);
const cells = new Map();
for (let i = 0; i < N; i++) {
  const c = cellOf(X[i], Y[i]);
  if (cells.has(c)) cells.get(c).push(i); else cells.set(c, [i]);
}

// ---- colours ---------------------------------------------------------------------------------
let dark = false, ink = "", soft = "", card = "", accent = "", bad = "", mark = "", gold = "";
const HUES = [212, 28, 142, 268, 350, 186, 46, 316, 92, 236, 12, 164];
const hueColour = (k, alpha = 1) => {
  const h = HUES[k % HUES.length], ring = Math.floor(k / HUES.length) % 3;
  const light = (dark ? [66, 78, 54] : [50, 62, 38])[ring], full = [62, 46, 52][ring];
  return `hsl(${(h + 9 * Math.floor(k / 36)) % 360} ${full}% ${light}% / ${alpha})`;
};
let times = [Infinity, -Infinity];
if (time) for (const t of time) if (t === t) times = [Math.min(times[0], t), Math.max(times[1], t)];
const STEPS = 12;
const timeStep = i => time[i] !== time[i] ? -1 : Math.min(STEPS - 1, Math.floor((time[i] - times[0]) / (times[1] - times[0] || 1) * STEPS));
const timeColour = s => s < 0 ? soft : `hsl(${260 - 215 * s / (STEPS - 1)} ${dark ? 70 : 60}% ${dark ? 62 : 48}%)`;
const COLOURS = {
  community: {name: "by community", of: i => community[i], colour: hueColour},
  kind: {name: "by kind", of: i => kind[i], colour: hueColour},
};
if (mode) COLOURS.mode = {name: "by mode", of: i => mode[i], colour: k => k === 65535 ? soft : hueColour(k)};
if (time && times[1] > times[0]) COLOURS.time = {name: "by time", of: timeStep, colour: timeColour};
let colouring = "community", groups = new Map();
const regroup = () => {
  groups = new Map();
  const {of} = COLOURS[colouring];
  for (let i = 0; i < N; i++) { const g = of(i); if (groups.has(g)) groups.get(g).push(i); else groups.set(g, [i]); }
};
const EDGE_HUES = [190, 225, 280, 150, 22, 45, 190, 140, 0, 330, 310, 100, 60, 240];
const edgeColour = (t, alpha) => data.edge_types[t].negative
  ? (dark ? `rgb(255 110 110 / ${Math.min(1, alpha * 2 + .35)})` : `rgb(201 42 42 / ${Math.min(1, alpha * 2 + .35)})`)
  : `hsl(${EDGE_HUES[data.edge_types[t].code % 14]} ${dark ? 42 : 45}% ${dark ? 66 : 42}% / ${alpha})`;
const readTheme = () => {
  const style = getComputedStyle(document.documentElement), v = n => style.getPropertyValue(n).trim();
  dark = matchMedia("(prefers-color-scheme: dark)").matches && !matchMedia("print").matches;
  [ink, soft, card, accent, bad, mark, gold] = ["--ink", "--soft", "--card", "--accent", "--bad", "--mark", "--gold"].map(v);
  document.querySelectorAll("[data-community]").forEach(s => { s.style.background = hueColour(+s.dataset.community); });
};

// ---- view ------------------------------------------------------------------------------------
const pen = canvas.getContext("2d");
let width = 0, height = 0, ratio = 1, k = 1, tx = 0, ty = 0, least = 0.01;
let chosen = -1, over = -1, found = null, moving = false, idle = 0, frame = 0;
const shown = data.edge_types.map(t => t.on);
let bridgesOn = true, frontiersOn = true;
const sx = x => x * k + tx, sy = y => y * k + ty;
const fit = () => {
  // Room above for a name, below for the legend, beside for labels.
  const above = 24, below = 44, beside = N <= 400 ? 70 : 8, high = height - above - below;
  k = Math.min((width - 2 * beside) / (extent[2] - extent[0]), high / (extent[3] - extent[1]), 60); least = k / 3;
  tx = width / 2 - (extent[0] + extent[2]) / 2 * k; ty = above + high / 2 - (extent[1] + extent[3]) / 2 * k;
};
const radiusOf = i => Math.max(large ? 0.9 : 2.4, Math.min(large ? 9 : 11, k * (0.2 + 0.16 * weightOf[i] / 255)));
const schedule = () => { if (!frame) frame = requestAnimationFrame(() => { frame = 0; draw(); }); };
const stirred = () => { moving = true; clearTimeout(idle); idle = setTimeout(() => { moving = false; schedule(); }, 160); schedule(); };
const resize = () => {
  const box = canvas.parentElement.getBoundingClientRect(), was = width;
  width = box.width; height = box.height; ratio = Math.min(2, devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
  if (!was) fit();
  schedule();
};

const line = (path, e) => {
  const a = S[e], b = T[e], x1 = sx(X[a]), y1 = sy(Y[a]), x2 = sx(X[b]), y2 = sy(Y[b]);
  path.moveTo(x1, y1);
  if (community[a] === community[b]) path.lineTo(x2, y2);
  else path.quadraticCurveTo((x1 + x2) / 2 + (y2 - y1) * .12, (y1 + y2) / 2 - (x2 - x1) * .12, x2, y2);
};
const inView = (i, pad) => { const x = sx(X[i]), y = sy(Y[i]); return x > -pad && y > -pad && x < width + pad && y < height + pad; };
const typeName = t => data.edge_types[t].name;

const drawEdges = far => {
  const budget = moving ? 5000 : 30000, paths = data.edge_types.map(() => null);
  let count = 0, visible = 0, wanted = 0;
  const thin = found && found.size;
  for (let e = 0; e < E; e++) {
    if (!shown[type[e]]) continue;
    wanted++;
    if (far && community[S[e]] !== community[T[e]] && !data.edge_types[type[e]].negative) continue;
    if (!inView(S[e], 0) && !inView(T[e], 0)) continue;
    visible++;
    if (count >= budget) continue;
    count++;
    line(paths[type[e]] || (paths[type[e]] = new Path2D()), e);
  }
  const crowd = Math.max(.06, Math.min(.4, 11 / Math.sqrt(count + 1) * Math.min(1, k / 9)));
  paths.forEach((path, t) => {
    if (!path) return;
    const negative = data.edge_types[t].negative;
    pen.strokeStyle = edgeColour(t, thin ? crowd / 2 : crowd);
    pen.lineWidth = negative ? 1.6 : k > 14 ? 1.1 : .8;
    pen.setLineDash(negative ? [5, 4] : []);
    pen.stroke(path);
  });
  pen.setLineDash([]);
  return {count, visible, wanted};
};
const drawBundles = () => {
  // Links between two communities as one ribbon, where single lines would be a haze.
  let total = 0;
  const most = data.bundles.length ? data.bundles[0][2] : 1;
  data.bundles.forEach(([a, b, n]) => {
    const A = data.communities[a], B = data.communities[b];
    const x1 = sx(A.x), y1 = sy(A.y), x2 = sx(B.x), y2 = sy(B.y);
    pen.strokeStyle = `${dark ? "rgb(160 175 200" : "rgb(70 85 110"} / ${.1 + .2 * n / most})`;
    pen.lineWidth = .8 + 7 * Math.sqrt(n / most);
    pen.beginPath(); pen.moveTo(x1, y1);
    pen.quadraticCurveTo((x1 + x2) / 2 + (y2 - y1) * .1, (y1 + y2) / 2 - (x2 - x1) * .1, x2, y2);
    pen.stroke(); total += n;
  });
  return total;
};
const drawDiscs = () => data.communities.forEach((c, j) => {
  const r = c.r * k; if (c.size < 2 || r < 3) return;
  pen.beginPath(); pen.arc(sx(c.x), sy(c.y), r + 3, 0, 7);
  pen.fillStyle = hueColour(j, dark ? .13 : .1); pen.fill();
  pen.strokeStyle = hueColour(j, .35); pen.lineWidth = 1; pen.stroke();
});
const drawBridges = () => data.bridges.forEach(([a, b]) => {
  const path = new Path2D(), x1 = sx(X[a]), y1 = sy(Y[a]), x2 = sx(X[b]), y2 = sy(Y[b]);
  path.moveTo(x1, y1); path.quadraticCurveTo((x1 + x2) / 2 + (y2 - y1) * .12, (y1 + y2) / 2 - (x2 - x1) * .12, x2, y2);
  pen.strokeStyle = card; pen.lineWidth = 5.5; pen.stroke(path);
  pen.strokeStyle = mark; pen.lineWidth = 2.6; pen.stroke(path);
});
const dot = (x, y, r) => { pen.moveTo(x + r, y); pen.arc(x, y, r, 0, 7); };
const drawNodes = () => {
  const {colour} = COLOURS[colouring];
  groups.forEach((list, g) => {
    pen.fillStyle = colour(g); pen.beginPath();
    const faint = [];
    for (const i of list) {
      if (!inView(i, 12)) continue;
      if (found && !found.has(i)) { faint.push(i); continue; }
      const r = radiusOf(i), x = sx(X[i]), y = sy(Y[i]);
      if (isConcept(i)) { const h = r * .8; pen.rect(x - h, y - h, 2 * h, 2 * h); }
      else if (r < 1.6) pen.rect(x - r, y - r, 2 * r, 2 * r); else dot(x, y, r);
    }
    pen.fill();
    if (faint.length) {
      pen.globalAlpha = .18; pen.beginPath();
      for (const i of faint) { const r = radiusOf(i), x = sx(X[i]), y = sy(Y[i]); pen.rect(x - r * .8, y - r * .8, r * 1.6, r * 1.6); }
      pen.fill(); pen.globalAlpha = 1;
    }
  });
  if (!large && k > 6) {
    pen.strokeStyle = card; pen.lineWidth = 1; pen.beginPath();
    for (let i = 0; i < N; i++) if (!isConcept(i)) dot(sx(X[i]), sy(Y[i]), radiusOf(i));
    pen.stroke();
  }
};
const diamond = (x, y, r) => { pen.beginPath(); pen.moveTo(x, y - r); pen.lineTo(x + r, y); pen.lineTo(x, y + r); pen.lineTo(x - r, y); pen.closePath(); };
const drawMarks = () => {
  if (bridgesOn) for (let i = 0; i < N; i++) if (linked[i] && inView(i, 12)) {
    pen.beginPath(); dot(sx(X[i]), sy(Y[i]), radiusOf(i) + 2); pen.strokeStyle = mark; pen.lineWidth = 2; pen.stroke();
  }
  if (frontiersOn) for (const i of data.frontiers) if (inView(i, 14)) {
    diamond(sx(X[i]), sy(Y[i]), Math.max(6.5, radiusOf(i) + 4.5));
    pen.strokeStyle = card; pen.lineWidth = 4; pen.stroke(); pen.strokeStyle = gold; pen.lineWidth = 2.2; pen.stroke();
  }
  const one = chosen >= 0 ? chosen : over;
  if (one >= 0) {
    const path = new Path2D();
    for (let j = first[one]; j < Math.min(first[one + 1], first[one] + 400); j++) if (shown[type[edgesOf[j]]]) line(path, edgesOf[j]);
    pen.strokeStyle = accent; pen.globalAlpha = .75; pen.lineWidth = 1.5; pen.stroke(path); pen.globalAlpha = 1;
  }
  for (const [i, w] of [[over, 2], [chosen, 3]]) if (i >= 0) {
    pen.beginPath(); dot(sx(X[i]), sy(Y[i]), radiusOf(i) + 3.5); pen.strokeStyle = ink; pen.lineWidth = w; pen.stroke();
  }
};

// Labels: the important first, none over another.
const taken = [];
const place = (x, y, w, h) => {
  const box = [x - w / 2 - 2, y - h / 2 - 1, x + w / 2 + 2, y + h / 2 + 1];
  for (const t of taken) if (box[0] < t[2] && box[2] > t[0] && box[1] < t[3] && box[3] > t[1]) return false;
  taken.push(box); return true;
};
const halo = (words, x, y, colour, w = 3.5) => {
  pen.lineJoin = "round"; pen.strokeStyle = card; pen.lineWidth = w; pen.strokeText(words, x, y);
  pen.fillStyle = colour; pen.fillText(words, x, y);
};
const cut = (words, n) => words.length > n ? words.slice(0, n - 1).trimEnd() + "…" : words;
const byWeight = Array.from({length: N}, (_, i) => i).sort((a, b) => weightOf[b] - weightOf[a]);
const drawCommunityLabels = () => {
  pen.textAlign = "center"; pen.textBaseline = "middle";
  const whole = k > 12;
  data.communities.forEach((c, j) => {
    const r = c.r * k, x = sx(c.x), y = sy(c.y);
    if (c.size < 3 || r < 16 || !c.name || x < -r || y < -r || x > width + r || y > height + r) return;
    const words = c.name.split(", "), size = Math.max(10.5, Math.min(17, r / 4.2));
    pen.font = `650 ${size}px system-ui, sans-serif`;
    const lines = large ? words.slice(0, r > 46 ? 3 : r > 30 ? 2 : 1) : [words.slice(0, 3).join(" · ")];
    const tall = size * 1.12 * lines.length, wide = Math.max(...lines.map(l => pen.measureText(l).width));
    const at = large && !whole ? y : y - r - 4 - tall / 2;
    if (!place(x, at, wide, tall)) return;
    lines.forEach((l, n) => halo(l, x, at + (n - (lines.length - 1) / 2) * size * 1.12, ink, 4));
  });
};
const drawNodeLabels = () => {
  const wanted = large ? (k > 22 ? 140 : 0) : N <= 400 ? (k > 40 ? 260 : 90) : k > 14 ? 160 : 40;
  const told = new Set();
  pen.font = `${large ? 11.5 : 11}px system-ui, sans-serif`; pen.textAlign = "left"; pen.textBaseline = "middle";
  let count = 0;
  const one = i => {
    if (told.has(i) || !inView(i, 0) || (found && !found.has(i))) return;
    told.add(i);
    const words = cut(data.labels ? data.labels[i] : text(i), k > 60 ? 60 : k > 30 ? 38 : 24), w = pen.measureText(words).width;
    const r = radiusOf(i), x = sx(X[i]), y = sy(Y[i]);
    for (const [dx, dy] of [[r + 4 + w / 2, 0], [-(r + 4 + w / 2), 0], [0, r + 8], [0, -r - 8]])
      if (x + dx - w / 2 > 2 && x + dx + w / 2 < width - 2 && place(x + dx, y + dy, w, 12)) {
        pen.textAlign = "center"; halo(words, x + dx, y + dy, linked[i] ? mark : isConcept(i) ? soft : ink); count++; return;
      }
  };
  if (N <= 400) for (let i = 0; i < N; i++) { // no label over a node
    const x = sx(X[i]), y = sy(Y[i]), r = radiusOf(i) * .8;
    taken.push([x - r, y - r, x + r, y + r]);
  }
  if (wanted) {
    if (frontiersOn) data.frontiers.forEach(one);
    if (bridgesOn) data.bridges.forEach(b => { one(b[0]); one(b[1]); });
  }
  for (const i of byWeight) { if (count >= wanted) break; if (!(linked[i] || frontier[i])) one(i); }
  return count;
};

const draw = () => {
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  taken.length = 0;
  const far = large && k < 9;
  drawDiscs();
  const bundled = far ? drawBundles() : 0;
  const told = drawEdges(far);
  if (bridgesOn) drawBridges();
  drawNodes();
  drawMarks();
  if (over >= 0 || chosen >= 0) { const i = chosen >= 0 ? chosen : over; place(sx(X[i]), sy(Y[i]), 20, 20); }
  if (!moving || !large) { drawCommunityLabels(); drawNodeLabels(); }
  else drawCommunityLabels();
  const n = v => v.toLocaleString("en");
  let say = `${n(told.count)} of ${n(told.wanted)} edges drawn`;
  if (bundled) say += `; ${n(bundled)} links between communities as ${n(data.bundles.length)} bundles (the strongest)`;
  if (told.count < told.visible || bundled) say += "; zoom in for more";
  $("drawn").textContent = say + ".";
};

// ---- what is chosen --------------------------------------------------------------------------
const element = (tag, words, cls) => { const e = document.createElement(tag); if (words !== undefined) e.textContent = words; if (cls) e.className = cls; return e; };
const day = i => time && Math.abs(time[i]) < 8.64e12 ? new Date(time[i] * 1000).toISOString().slice(0, 16).replace("T", " ") + " UTC" : "";
const communityName = c => data.communities[c] && data.communities[c].name ? data.communities[c].name : `${c + 1}`;
const metaOf = i => [data.kinds[kind[i]], data.sessions ? data.sessions[u16s[i]] : "", day(i)].filter(Boolean).join(" · ");
const u16s = data.session ? u16(data.session) : null;
const detail = $("detail");
const toEnd = (i, note, minus) => {
  const item = element("li"), button = element("button", cut(text(i), 130), "goto");
  button.type = "button"; button.dataset.node = i;
  if (note) button.append(element("small", note, minus ? "minus" : ""));
  item.append(button); return item;
};
const showDetail = i => {
  detail.replaceChildren();
  if (i < 0) {
    detail.append(element("p", `${N.toLocaleString("en")} memories in ${data.communities.length.toLocaleString("en")} communities. Point at one to read it, choose it to see its edges.`));
    detail.append(element("h3", "Largest communities"));
    const list = element("ul");
    data.communities.slice(0, 12).forEach((c, j) => {
      const item = element("li"), b = element("button", "", "goto"), s = element("span", "", "swatch");
      b.type = "button"; b.dataset.disc = j; s.style.background = hueColour(j); b.append(s, `${c.name || j + 1}`, element("small", `${c.size.toLocaleString("en")} nodes`)); item.append(b); list.append(item);
    });
    detail.append(list); return;
  }
  detail.append(element("span", metaOf(i), "meta"));
  detail.append(element("p", text(i), "text"));
  const where = element("p", ""), s = element("span", "", "swatch");
  s.style.background = hueColour(community[i]); where.append(s, `Community: ${communityName(community[i])}`); detail.append(where);
  const facts = [mode && mode[i] !== 65535 ? `mode ${mode[i] + 1}` : "", frontier[i] ? "frontier" : "", linked[i] ? "end of a bridge" : "", data.ids ? data.ids[i] : ""].filter(Boolean).join(" · ");
  if (facts) detail.append(element("span", facts, "meta"));
  const edges = Array.from(edgesOf.subarray(first[i], first[i + 1])).sort((a, b) => Math.abs(W[b]) - Math.abs(W[a]));
  detail.append(element("h3", edges.length ? `Strongest of ${edges.length.toLocaleString("en")} edges` : "No edges"));
  const list = element("ul");
  edges.slice(0, 14).forEach(e => {
    const out = S[e] === i;
    list.append(toEnd(out ? T[e] : S[e], `${out ? "→" : "←"} ${typeName(type[e])} ${W[e].toFixed(2)}`, W[e] < 0));
  });
  detail.append(list);
};
const choose = (i, travel) => {
  chosen = i; showDetail(i);
  if (i >= 0 && travel) {
    k = Math.max(k, large ? 24 : Math.min(26, 2.2 * Math.min(width, height) / data.box[2]));
    tx = width / 2 - X[i] * k; ty = height / 2 - Y[i] * k;
  }
  stirred();
};
const at = (px, py) => {
  const x = (px - tx) / k, y = (py - ty) / k, reach = Math.max(10, k * .4) / k, steps = Math.min(40, Math.ceil(reach / cell));
  const column = Math.floor((x - data.box[0]) / cell), row = Math.floor((y - data.box[1]) / cell);
  let best = -1, least = Infinity;
  for (let r = row - steps; r <= row + steps; r++) for (let c = column - steps; c <= column + steps; c++)
    if (c >= 0 && c < across) for (const i of cells.get(r * across + c) || []) {
      const d = Math.hypot(X[i] - x, Y[i] - y) * k - radiusOf(i);
      if (d < 5 && d < least) { least = d; best = i; }
    }
  return best;
};
const tip = $("tip");
const hover = (i, px, py) => {
  if (i !== over) { over = i; canvas.classList.toggle("over", i >= 0); schedule(); }
  tip.hidden = i < 0;
  if (i < 0) return;
  tip.replaceChildren(element("span", cut(text(i), 220)), element("b", metaOf(i)), element("b", communityName(community[i])));
  const w = tip.offsetWidth, h = tip.offsetHeight;
  tip.style.left = `${Math.max(4, Math.min(px + 14, width - w - 6))}px`;
  tip.style.top = `${py + 16 + h > height ? Math.max(4, py - h - 12) : py + 16}px`;
};

// ---- hands -----------------------------------------------------------------------------------
const zoom = (factor, px = width / 2, py = height / 2) => {
  const to = Math.max(least, Math.min(400, k * factor));
  tx = px - (px - tx) * to / k; ty = py - (py - ty) * to / k; k = to; stirred();
};
const pointers = new Map();
let travelled = 0;
const local = e => { const b = canvas.getBoundingClientRect(); return [e.clientX - b.left, e.clientY - b.top]; };
canvas.addEventListener("pointerdown", e => { canvas.setPointerCapture(e.pointerId); pointers.set(e.pointerId, local(e)); travelled = 0; canvas.classList.add("held"); });
canvas.addEventListener("pointermove", e => {
  const now = local(e), was = pointers.get(e.pointerId);
  if (!was) { hover(at(...now), ...now); return; }
  if (pointers.size === 2) {
    const other = [...pointers].find(([id]) => id !== e.pointerId)[1];
    zoom(Math.hypot(now[0] - other[0], now[1] - other[1]) / (Math.hypot(was[0] - other[0], was[1] - other[1]) || 1), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    travelled += 9;
  } else { tx += now[0] - was[0]; ty += now[1] - was[1]; travelled += Math.abs(now[0] - was[0]) + Math.abs(now[1] - was[1]); hover(-1); stirred(); }
  pointers.set(e.pointerId, now);
});
const released = e => {
  const here = pointers.delete(e.pointerId); canvas.classList.remove("held");
  if (here && e.type === "pointerup" && travelled < 5 && !pointers.size) choose(at(...local(e)));
};
canvas.addEventListener("pointerup", released);
canvas.addEventListener("pointercancel", released);
canvas.addEventListener("pointerleave", () => hover(-1));
canvas.addEventListener("wheel", e => { e.preventDefault(); zoom(Math.exp(-Math.max(-60, Math.min(60, e.deltaY)) * .006), ...local(e)); }, {passive: false});
canvas.addEventListener("dblclick", e => zoom(2, ...local(e)));
canvas.addEventListener("keydown", e => {
  const step = 60, act = {
    ArrowLeft: () => { tx += step; }, ArrowRight: () => { tx -= step; }, ArrowUp: () => { ty += step; }, ArrowDown: () => { ty -= step; },
    "+": () => zoom(1.3), "=": () => zoom(1.3), "-": () => zoom(1 / 1.3), "0": fit,
    n: () => choose((chosen + 1) % N, true), p: () => choose((chosen + N - 1 + (chosen < 0 ? 1 : 0)) % N, true), Escape: () => choose(-1),
  }[e.key];
  if (act && !e.ctrlKey && !e.metaKey && !e.altKey) { e.preventDefault(); act(); stirred(); }
});
$("in").onclick = () => zoom(1.5); $("out").onclick = () => zoom(1 / 1.5); $("fit").onclick = () => { fit(); stirred(); };
document.addEventListener("keydown", e => { if (e.key === "/" && !/INPUT|SELECT|TEXTAREA/.test(document.activeElement.tagName)) { e.preventDefault(); $("search").focus(); } });
document.addEventListener("click", e => {
  const b = e.target.closest("[data-node],[data-disc]"); if (!b || b.tagName !== "BUTTON") return;
  if (b.dataset.node !== undefined) choose(+b.dataset.node, true);
  else { const c = data.communities[+b.dataset.disc]; k = Math.min(60, .8 * Math.min(width, height) / (2 * c.r + 1)); tx = width / 2 - c.x * k; ty = height / 2 - c.y * k; stirred(); }
  if (!b.closest(".stage")) canvas.scrollIntoView({block: "center"});
});

// ---- search ----------------------------------------------------------------------------------
const lower = [];
const search = () => {
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) { found = null; showDetail(chosen); stirred(); return; }
  if (!lower.length) for (let i = 0; i < N; i++) lower.push(`${text(i)} ${data.ids ? data.ids[i] : ""}`.toLowerCase());
  found = new Set();
  for (let i = 0; i < N; i++) if (words.every(w => lower[i].includes(w))) found.add(i);
  detail.replaceChildren(element("p", `${found.size.toLocaleString("en")} of ${N.toLocaleString("en")} match.`));
  const list = element("ul");
  [...found].slice(0, 40).forEach(i => list.append(toEnd(i, metaOf(i))));
  detail.append(list); stirred();
};
let typing = 0;
$("search").addEventListener("input", () => { clearTimeout(typing); typing = setTimeout(search, 120); });
$("search").addEventListener("keydown", e => {
  if (e.key === "Enter") { clearTimeout(typing); search(); if (found && found.size) choose(found.values().next().value, true); }
  if (e.key === "Escape") { $("search").value = ""; search(); }
});

// ---- switches and legend ---------------------------------------------------------------------
const chip = (name, colour, on, act, dashed) => {
  const label = element("label", undefined, "chip"), box = element("input"), swatch = element("i");
  box.type = "checkbox"; box.checked = on; swatch.style.color = colour; if (dashed) swatch.style.borderTopStyle = "dashed";
  box.onchange = () => { act(box.checked); stirred(); };
  label.append(box, swatch, name); $("types").append(label);
};
const switches = () => {
  $("types").replaceChildren($("types").firstElementChild);
  data.edge_types.forEach((t, j) => chip(`${t.name} ${t.count.toLocaleString("en")}`, edgeColour(j, 1), shown[j], on => { shown[j] = on; }, t.negative));
  if (data.bridges.length) chip("bridges", mark, bridgesOn, on => { bridgesOn = on; legend(); });
  if (data.frontiers.length) chip("frontiers", gold, frontiersOn, on => { frontiersOn = on; legend(); });
};
const legend = () => {
  const entry = (shape, words) => { const s = element("span"); s.innerHTML = `<svg viewBox="0 0 20 14" aria-hidden="true">${shape}</svg>`; s.append(words); return s; };
  const box = $("legend"); box.replaceChildren();
  box.append(entry(`<circle cx="10" cy="7" r="5" fill="${hueColour(0)}"/>`, "memory, " + COLOURS[colouring].name.slice(3)));
  if (concepts) box.append(entry(`<rect x="6" y="3" width="8" height="8" fill="${hueColour(0)}"/>`, "concept"));
  if (data.bridges.length && bridgesOn) box.append(entry(`<path d="M1 11Q10 0 19 5" fill="none" stroke="${mark}" stroke-width="2.6"/>`, "bridge"));
  if (data.frontiers.length && frontiersOn) box.append(entry(`<path d="M10 0L17 7L10 14L3 7Z" fill="none" stroke="${gold}" stroke-width="2.2"/>`, "frontier"));
  if (data.edge_types.some(t => t.negative)) box.append(entry(`<path d="M0 7H20" stroke="${bad}" stroke-width="2" stroke-dasharray="5 3"/>`, "contradiction"));
};
Object.entries(COLOURS).forEach(([key, c]) => { const o = element("option", c.name); o.value = key; $("colour").append(o); });
$("colour").onchange = () => { colouring = $("colour").value; regroup(); legend(); stirred(); };
const themed = () => { readTheme(); switches(); legend(); schedule(); };
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
matchMedia("print").addEventListener("change", () => { themed(); draw(); });
new ResizeObserver(resize).observe(canvas.parentElement);
regroup(); themed(); showDetail(-1); resize();
// For scripts: what is drawn, and how to steer it.
window.graphmem = {data, choose, fit: () => { fit(); stirred(); }, zoom, at, draw, place: i => [sx(X[i]), sy(Y[i])], state: () => ({k, chosen, over, found: found && found.size, moving, drawn: $("drawn").textContent})};
})();
