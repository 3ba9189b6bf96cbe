// An element with the given tag, class and text. The text is never parsed as HTML.
function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

// Two images of equal size, one over the other, with a line between them that can be dragged or moved by arrow keys.
function beforeAfter(left, right) {
  const stage = make("div", "stage"), divider = make("div", "divider"), range = make("input");
  left.className = "left";
  Object.assign(range, { type: "range", min: 0, max: 100, step: 0.1, value: 50 });
  range.setAttribute("aria-label", "position of the line between the two pictures");
  const move = () => {
    left.style.clipPath = "inset(0 " + (100 - range.value) + "% 0 0)";
    divider.style.left = range.value + "%";
  };
  stage.addEventListener("pointermove", event => {
    if (!event.buttons) return;
    const box = stage.getBoundingClientRect();
    range.value = 100 * (event.clientX - box.left) / box.width;
    move();
  });
  range.addEventListener("input", move);
  stage.append(right, left, divider, range);
  move();
  return stage;
}
