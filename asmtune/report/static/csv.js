// The shown rows as a file.

const FORMULA = /^\s*[=+\-@\uff1d\uff0b\uff0d\uff20]/;
const NUMBER = /^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$/;

/** One cell, quoted where it must be; a text that a spreadsheet would run gets an apostrophe. */
function cell(value) {
  const plain = value === null || value === undefined ? "" : String(value);
  const text = FORMULA.test(plain) && !NUMBER.test(plain) ? `'${plain}` : plain;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows as CSV: every axis, then the columns that are shown, under the names that the report uses. */
export function csvText(report, rows, columns) {
  const names = [...new Set([...report.axes, ...columns])];
  const lines = rows.map((row) => names.map((name) => cell(report.value(name, row))).join(","));
  return `${[names.map(cell).join(","), ...lines].join("\n")}\n`;
}

/** Offers text as a file to save. */
export function save(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
