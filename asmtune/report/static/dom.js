// Elements and numbers. All text of a report goes through `make`, never through markup.

/** An element with attributes, listeners (`on`) and children; null, undefined, false are left out. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** The element of the page with an id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Hides or shows an element. */
export function show(element, shown) {
  element.hidden = !shown;
}

/** Says something to screen readers, and to nobody else. */
export function announce(text) {
  byId("announcer").textContent = text;
}

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

/** A number in few characters: thousands in groups, four digits at most below 1,000. */
export function number(value) {
  if (value === null || value === undefined) return "";
  if (typeof value !== "number") return String(value);
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return WHOLE.format(value);
  const digits = Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 1 ? 2 : 3;
  return value.toFixed(digits);
}

/** A share as a whole percentage; "<1%" where it is not nothing. */
export function percent(share) {
  return share > 0 && share < 0.005 ? "<1%" : `${Math.round(share * 100)}%`;
}

/** Whether a key is meant for a field and not for the page. */
export function isTyping(event) {
  const typed = event.target.closest("input, select, textarea, [contenteditable]");
  return typed !== null && typed.type !== "checkbox";
}

/** A phone, as a query of media. */
export const NARROW = "(max-width: 640px)";

/** Puts text into the clipboard, in the old way where a page from disk may not in the new; says if it did. */
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = make("textarea", { class: "sr", "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}
