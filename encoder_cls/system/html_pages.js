// --- Tables -------------------------------------------------------------------------------------

// A table is sorted by the column whose head is pressed, by pointer or keyboard; pressed again, it
// reverses the order.
document.querySelectorAll("table.sortable thead th").forEach((head) => {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...head.childNodes);
  head.append(button);
  head.addEventListener("click", () => sortBy(head));
});

function sortBy(head) {
  const table = head.closest("table");
  const body = table.tBodies[0];
  const column = [...head.parentNode.children].indexOf(head);

  const isDescending = head.getAttribute("aria-sort") !== "descending";
  table.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", isDescending ? "descending" : "ascending");

  // The keys are read once, and all rows are put into the page at once: there may be many rows.
  const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const keyed = [...body.rows].map((row) => [key(row), row]);
  const collator = new Intl.Collator();
  const compare = (a, b) => (isNaN(a) || isNaN(b) ? collator.compare(a, b) : b - a);
  keyed.sort((a, b) => (isDescending ? 1 : -1) * compare(a[0], b[0]));

  const sorted = document.createDocumentFragment();
  keyed.forEach(([, row]) => sorted.append(row));
  body.append(sorted);
}

// A field above a table shows only the rows that have its text in their first cell.
document.querySelectorAll("input.filter").forEach((field) => {
  const rows = [...document.getElementById(field.dataset.table).tBodies[0].rows];
  const names = rows.map((row) => row.cells[0].textContent.toLowerCase());
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    rows.forEach((row, number) => (row.hidden = !names[number].includes(wanted)));
  });
});

// --- Attention maps -----------------------------------------------------------------------------

// An attention map has a byte for each cell, its level, which is the square root of its weight. It
// is drawn in the colours of the page's scale, and shows the weight of the cell at the pointer.
const maps = document.querySelectorAll("svg[data-levels]");
if (maps.length) {
  const colours = coloursOfLevels();
  maps.forEach((map) => draw(map, colours));
  maps.forEach(showValuesAtPointer);
}

// The colour of each level, a pixel of four bytes, (256,).
function coloursOfLevels() {
  const context = newCanvas(256, 1).getContext("2d");
  const gradient = context.createLinearGradient(0.5, 0, 255.5, 0);
  document.querySelectorAll("#levels stop").forEach((stop) => {
    gradient.addColorStop(Number(stop.getAttribute("offset")), stop.getAttribute("stop-color"));
  });
  context.fillStyle = gradient;
  context.fillRect(0, 0, 256, 1);
  return new Uint32Array(context.getImageData(0, 0, 256, 1).data.buffer);
}

function draw(map, colours) {
  const levels = levelsOf(map);
  const side = Math.sqrt(levels.length);

  const canvas = newCanvas(side, side);
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(side, side);
  new Uint32Array(pixels.data.buffer).set(Uint32Array.from(levels, (level) => colours[level]));
  context.putImageData(pixels, 0, 0);
  map.querySelector("image").setAttribute("href", canvas.toDataURL());
}

// Shows both tokens and the weight of the cell at the pointer in a box beside it.
function showValuesAtPointer(map) {
  const levels = levelsOf(map);
  const side = Math.sqrt(levels.length);
  const image = map.querySelector("image");
  const idOfNames = map.querySelector("use").getAttribute("href");
  const names = [...document.querySelectorAll(`${idOfNames} text.row`)];
  const box = document.createElement("div");
  box.id = "pointed";

  const cellAt = (place, start, size) => {
    const cell = Math.floor(((place - start) / size) * side);
    return Math.max(0, Math.min(side - 1, cell));
  };
  const show = (event) => {
    const area = image.getBoundingClientRect();
    const row = cellAt(event.clientY, area.top, area.height);
    const column = cellAt(event.clientX, area.left, area.width);

    const weight = (levels[row * side + column] / 255) ** 2;
    // Isolated, so that names from right to left do not turn the arrow round.
    const [from, to] = [row, column].map((cell) => `\u2068${names[cell].textContent}\u2069`);
    box.textContent = `${from} → ${to}: ${weight.toFixed(weight < 0.1 ? 3 : 2)}`;

    // The box has a size only once it is in the page.
    document.querySelector("main").append(box);
    box.style.left = Math.min(event.clientX + 12, innerWidth - box.offsetWidth - 6) + "px";
    box.style.top = Math.max(6, event.clientY - box.offsetHeight - 10) + "px";
  };

  image.addEventListener("pointermove", show);
  image.addEventListener("pointerdown", show);
  image.addEventListener("pointerleave", () => box.remove());
}

function levelsOf(map) {
  return Uint8Array.from(atob(map.dataset.levels), (letter) => letter.charCodeAt(0));
}

function newCanvas(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}
