"use strict";
(() => {
  const find = (id) => document.getElementById(id);
  const data = JSON.parse(find("data").textContent);
  const kinds = new Map(data.kinds.map((kind) => [kind.name, kind]));
  const state = { kind: "cross", layer: 0, head: 0, view: data.by }; // layer from 1; head 0: mean
  let shown; // rows, columns, grid
  let chosen = { side: "from", index: 0 };

  // ---- weights ----

  /** All weights of a kind, [layer, head, row, column] over subwords; a byte is 255 times the root. */
  function weightsOf(kind) {
    if (!kind.table) {
      const bytes = atob(kind.weights);
      kind.table = new Float32Array(bytes.length);
      for (let i = 0; i < bytes.length; i++) kind.table[i] = (bytes.charCodeAt(i) / 255) ** 2;
    }
    return kind.table;
  }

  /** Words or subwords of a side: [text, first subword, last subword, unknown]. */
  const units = (side) => data.sides[side][state.view];
  const subwords = (side) => data.sides[side].subwords.length;

  /** Weights [row, column] of one head, or the mean of all: rows averaged, columns summed. */
  function gridOf(kind, layer, head) {
    const all = weightsOf(kind);
    const [height, width] = [subwords(kind.rows), subwords(kind.columns)];
    const [rows, columns] = [units(kind.rows), units(kind.columns)];
    const heads = head ? [head - 1] : [...Array(kind.heads).keys()];
    const grid = new Float32Array(rows.length * columns.length);
    for (const number of heads) {
      const start = ((layer - 1) * kind.heads + number) * height * width;
      rows.forEach(([, top, bottom], r) => columns.forEach(([, left, right], c) => {
        let sum = 0;
        for (let i = top; i <= bottom; i++) {
          for (let j = left; j <= right; j++) sum += all[start + i * width + j];
        }
        grid[r * columns.length + c] += sum / (bottom - top + 1) / heads.length;
      }));
    }
    return { rows, columns, grid };
  }

  // ---- drawing ----

  const shade = (weight) => Math.sqrt(Math.min(1, weight));
  const percent = (weight) => `${(100 * weight).toFixed(1)} %`;
  const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches && !matchMedia("print").matches;

  function paint(canvas, { rows, columns, grid }) {
    const ink = getComputedStyle(document.documentElement).getPropertyValue("--ink").trim().split(/\s+/);
    canvas.width = columns.length;
    canvas.height = rows.length;
    const context = canvas.getContext("2d");
    const image = context.createImageData(columns.length, rows.length);
    grid.forEach((weight, i) => image.data.set([...ink.map(Number), Math.round(255 * shade(weight))], 4 * i));
    context.putImageData(image, 0, 0);
  }

  /** An element that holds a word, of whatever script. */
  function word(tag, side, [text, , , unknown]) {
    const element = document.createElement(tag);
    element.textContent = element.title = text;
    element.dir = "auto";
    element.lang = data.sides[side].lang;
    if (/^\((start|end)\)$/.test(text)) element.className = "mark";
    if (unknown) {
      element.className = "unknown";
      element.title += " (not known to the model)";
    }
    return element;
  }

  function colour(button, weight) {
    const alpha = weight === null ? 0 : shade(weight);
    button.style.setProperty("--shade", alpha.toFixed(3));
    button.classList.toggle("deep", alpha > (isDark() ? 0.605 : 0.755)); // contrast is 4.5 there
  }

  function fillWords(name, side) {
    const list = find(name);
    list.dir = data.sides[side].dir;
    list.replaceChildren(...units(side).map((unit, index) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(word("span", side, unit));
      button.onfocus = button.onclick = () => choose(name, index);
      button.onpointerenter = (event) => event.pointerType === "mouse" && choose(name, index);
      return button;
    }));
    list.onkeydown = (event) => move(event, list);
  }

  /** The arrow keys go through a list of words, of which Tab reaches one. */
  function move(event, list) {
    const buttons = [...list.children];
    const here = buttons.indexOf(document.activeElement);
    const right = list.dir === "rtl" ? -1 : 1;
    const steps = { ArrowRight: right, ArrowLeft: -right, ArrowDown: 1, ArrowUp: -1 };
    const to = { Home: 0, End: buttons.length - 1 }[event.key] ?? here + (steps[event.key] ?? NaN);
    if (Number.isNaN(to) || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    buttons[Math.max(0, Math.min(buttons.length - 1, to))].focus();
  }

  function fillMap(kind) {
    const labels = (side, wrap) => units(side).map((unit) => {
      const label = word("span", side, unit);
      if (!wrap) return label;
      const box = document.createElement("div");
      box.append(label);
      return box;
    });
    find("tops").replaceChildren(...labels(kind.columns, true));
    find("sides").replaceChildren(...labels(kind.rows, false));
    const widths = [...find("tops").querySelectorAll("span")].map((label) => label.offsetWidth);
    find("tops").style.height = `${Math.max(...widths) + 8}px`;
    document.documentElement.style.setProperty("--columns", units(kind.columns).length);
    find("grid").style.width = `calc(var(--cell) * ${units(kind.columns).length})`;
    find("grid").style.height = `calc(var(--cell) * ${units(kind.rows).length})`;
  }

  // ---- choosing ----

  function radios(id, name, options, draw) {
    const before = find(id).querySelector("legend");
    find(id).replaceChildren(before, ...options.map(([value, text]) => {
      const label = document.createElement("label");
      const input = document.createElement("input");
      Object.assign(input, { type: "radio", name, value, checked: String(state[name]) === String(value) });
      input.onchange = () => set({ [name]: typeof state[name] === "number" ? Number(value) : value });
      const face = document.createElement("span");
      if (draw) face.append(document.createElement("canvas"));
      face.append(text);
      label.append(input, face);
      return label;
    }));
  }

  const count = (number) => Array.from({ length: number }, (_, i) => [i + 1, String(i + 1)]);

  /** Change what is shown; keeps to what there is. */
  function set(change) {
    const focus = document.activeElement;
    const key = focus && focus.name ? `input[name="${focus.name}"]:checked` : null;
    Object.assign(state, change);
    if (!kinds.has(state.kind)) state.kind = data.kinds.at(-1).name;
    if (!["words", "subwords"].includes(state.view)) state.view = data.by;
    const kind = kinds.get(state.kind);
    if (!(state.layer >= 1 && state.layer <= kind.layers)) state.layer = kind.layers;
    if (!(state.head >= 0 && state.head <= kind.heads)) state.head = 0;
    radios("kinds", "kind", data.kinds.map(({ name, title }) => [name, title]));
    radios("layers", "layer", count(kind.layers));
    radios("views", "view", [["words", "words"], ["subwords", "subwords"]]);
    radios("heads", "head", [[0, "mean"], ...count(kind.heads)], true);
    if ("kind" in change || "view" in change) {
      fillWords("from", kind.rows);
      fillWords("to", kind.columns);
      fillMap(kind);
      chosen = { side: "from", index: Math.min(chosen.index, units(kind.rows).length - 1) };
    }
    if (key) document.querySelector(key).focus();
    history.replaceState(null, "", `#${state.kind}.${state.layer}.${state.head}.${state.view}`);
    draw();
  }

  function fillScale() {
    find("scale").replaceChildren(...[0.01, 0.1, 0.25, 0.5, 1].map((weight) => {
      const step = document.createElement("span");
      step.textContent = `${100 * weight} %`;
      colour(step, weight);
      return step;
    }));
  }

  function draw() {
    const kind = kinds.get(state.kind);
    fillScale();
    shown = gridOf(kind, state.layer, state.head);
    find("heads").querySelectorAll("canvas").forEach((canvas, head) => {
      paint(canvas, gridOf(kind, state.layer, head));
    });
    paint(find("grid"), shown);
    const head = state.head ? `head ${state.head}` : "mean of the heads";
    const caption = `${kind.title}, layer ${state.layer}, ${head}`;
    find("caption").textContent = caption[0].toUpperCase() + caption.slice(1);
    find("grid").setAttribute("aria-label", `${caption}: rows attend to columns`);
    const names = { source: "the source", target: "the target, as it is produced", read: "the target read so far" };
    find("from-name").textContent = `Looking: ${names[kind.rows]}`;
    find("to-name").textContent = `Looked at: ${names[kind.columns]}`;
    choose(chosen.side, chosen.index);
  }

  /** Show what a word attends to, or what attends to it. */
  function choose(side, index) {
    chosen = { side, index };
    const width = shown.columns.length;
    const fromRow = side === "from";
    const others = fromRow ? shown.columns : shown.rows;
    const weight = (i) => shown.grid[fromRow ? index * width + i : i * width + index];
    const lists = { from: [...find("from").children], to: [...find("to").children] };
    for (const [name, buttons] of Object.entries(lists)) {
      buttons.forEach((button, i) => {
        const isIt = name === side && i === index;
        button.setAttribute("aria-pressed", String(isIt));
        button.tabIndex = isIt || (name !== side && i === 0) ? 0 : -1;
        colour(button, name === side ? null : weight(i));
      });
    }
    const other = find(fromRow ? "to" : "from");
    if (other.scrollHeight > other.clientHeight + 8) {
      const strongest = others.reduce((best, _, i) => (weight(i) > weight(best) ? i : best), 0);
      other.scrollTop = other.children[strongest].offsetTop - other.clientHeight / 2;
    }
    find("tops").childNodes.forEach((box, i) => box.firstChild.classList.toggle("chosen", !fromRow && i === index));
    find("sides").childNodes.forEach((label, i) => label.classList.toggle("chosen", fromRow && i === index));
    frame("row", fromRow, shown.rows.length, index);
    frame("column", !fromRow, width, index);
    say(fromRow, index, others, weight);
  }

  /** The five that weigh most, in words. */
  function say(fromRow, index, others, weight) {
    const kind = kinds.get(state.kind);
    const [mine, theirs] = fromRow ? [kind.rows, kind.columns] : [kind.columns, kind.rows];
    const order = others.map((_, i) => i).sort((a, b) => weight(b) - weight(a)).slice(0, 5);
    const quoted = (side, unit) => ["“", word("bdi", side, unit), "”"];
    const parts = [...quoted(mine, units(mine)[index]), fromRow ? " attends to " : " is attended to by "];
    order.forEach((i, n) => {
      parts.push(n ? ", " : "", ...quoted(theirs, others[i]), ` ${percent(weight(i))}`);
    });
    find("said").replaceChildren(...parts);
  }

  function frame(id, visible, number, index) {
    const style = find(id).style;
    style.display = visible ? "block" : "none";
    const [start, across] = id === "row" ? ["top", "left"] : ["left", "top"];
    const [thick, along] = id === "row" ? ["height", "width"] : ["width", "height"];
    Object.assign(style, { [start]: `${(100 * index) / number}%`, [across]: 0 });
    Object.assign(style, { [thick]: `${100 / number}%`, [along]: "100%" });
  }

  function pointed(event) {
    const canvas = find("grid");
    const box = canvas.getBoundingClientRect();
    const at = (place, size, many) => Math.max(0, Math.min(many - 1, Math.floor((place / size) * many)));
    const row = at(event.clientY - box.top, box.height, shown.rows.length);
    const column = at(event.clientX - box.left, box.width, shown.columns.length);
    choose("from", row);
    canvas.title = `${shown.rows[row][0]} → ${shown.columns[column][0]}: ` +
      percent(shown.grid[row * shown.columns.length + column]);
  }

  function readHash() {
    const [kind, layer, head, view] = location.hash.slice(1).split(".");
    const found = { kind: kind || state.kind, view: view || state.view };
    if (layer) found.layer = Number(layer);
    if (head) found.head = Number(head);
    set(found);
  }

  document.querySelector("main").hidden = false;
  find("grid").onpointermove = find("grid").onclick = pointed;
  for (const query of ["(prefers-color-scheme: dark)", "print"]) {
    matchMedia(query).addEventListener("change", draw);
  }
  addEventListener("hashchange", readHash);
  readHash();
})();
