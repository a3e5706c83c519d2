"""The page's style sheet: light and dark, desktop, phone and paper.

in    number of buckets, for their colours
out   style_sheet
"""

from dflash_lightning.report.figures.palette import css_variables

SURFACES_LIGHT = "--page:#f4f6f9;--card:#ffffff;--soft:#eef1f6;--good:#15803d;--shadow:0 1px 2px #1c243014;"
SURFACES_DARK = "--page:#10141a;--card:#181e27;--soft:#222a36;--good:#5fd08a;--shadow:none;"


def style_sheet(num_buckets: int) -> str:
    """CSS of the whole page."""
    light = css_variables(num_buckets) + SURFACES_LIGHT
    dark = css_variables(num_buckets, dark=True) + SURFACES_DARK
    return (
        f":root{{color-scheme:light dark;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{RULES}"
    )


RULES = """\
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);
  font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;
  -webkit-text-size-adjust:100%}
main{max-width:1200px;margin:0 auto;padding:40px 24px 56px}
header p{margin:4px 0 0;color:var(--muted);font-size:14px;overflow-wrap:anywhere}
.kicker{font-size:12px;letter-spacing:.09em;text-transform:uppercase;color:var(--muted);font-weight:600}
h1{margin:2px 0 0;font-size:32px;line-height:1.2;letter-spacing:-.015em;overflow-wrap:anywhere}
h2{margin:44px 0 14px;font-size:20px;letter-spacing:-.01em}
h3{margin:0;font-size:16px;line-height:1.35}
code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"Liberation Mono",monospace;
  background:var(--soft);padding:2px 6px;border-radius:5px;overflow-wrap:anywhere}
.card{background:var(--card);border:1px solid var(--line);border-radius:12px;box-shadow:var(--shadow)}
.verdicts{display:grid;gap:12px}
header+.verdicts{margin-top:26px}
.verdict{padding:16px 20px 16px 18px;border-left:4px solid var(--tone)}
.verdict .kind{color:var(--tone);font-size:12px;font-weight:700;letter-spacing:.07em;text-transform:uppercase}
.verdict h3{margin-top:2px;font-size:18px}
.verdict ul{margin:8px 0 0;padding-left:18px;color:var(--muted);font-size:15px}
.verdict li{overflow-wrap:anywhere}
.verdict .steps{margin:10px 0 0;font-size:14px;color:var(--muted)}
.verdict .steps b{display:inline-block;margin:2px 2px;padding:0 8px;border-radius:99px;background:var(--soft);
  color:var(--ink);font-weight:600;font-variant-numeric:tabular-nums}
.verdict .steps code{display:inline-block;margin-top:4px}
.bad{--tone:var(--bad)}.caution{--tone:var(--warn)}.notice{--tone:var(--main)}
.calm{--tone:var(--good)}.unknown{--tone:var(--muted)}
.figures{display:grid;grid-template-columns:repeat(var(--columns),minmax(0,1fr));gap:10px;margin:0}
.figures div{padding:12px 14px}
.figures dt{font-size:12.5px;color:var(--muted);line-height:1.3}
.figures dd{margin:2px 0 0;font-size:21px;font-weight:650;letter-spacing:-.01em;
  font-variant-numeric:tabular-nums}
.settings{display:grid;grid-template-columns:repeat(auto-fill,minmax(290px,1fr));gap:0 32px;margin:12px 0 0;
  padding:10px 18px}
.settings div{display:flex;gap:14px;justify-content:space-between;padding:6px 0;font-size:14px}
.settings dt{color:var(--muted);white-space:nowrap}
.settings dd{margin:0;text-align:right;overflow-wrap:anywhere}
.charts{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px}
figure{margin:0;padding:16px 18px 14px;min-width:0;display:flex;flex-direction:column}
figure.wide{grid-column:1/-1}
figure svg{display:block;width:100%;height:auto;overflow:visible;margin-top:10px}
figure svg text{font-family:inherit!important;font-variant-numeric:tabular-nums}
figcaption{margin-top:auto;padding-top:8px;font-size:14px;line-height:1.45;color:var(--muted)}
.narrow{display:none!important}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:15px;font-variant-numeric:tabular-nums}
th,td{padding:9px 16px;text-align:right;border-top:1px solid var(--line);vertical-align:top}
th:first-child{text-align:left;font-weight:500;color:var(--muted);position:sticky;left:0;background:var(--card)}
thead th{border-top:0;font-weight:650;overflow-wrap:anywhere;min-width:110px}
td .kind{display:block;font-weight:600;color:var(--tone)}
.key{display:block;width:22px;height:4px;border-radius:2px;margin:2px 0 6px auto}
.aside{color:var(--muted);font-size:14px}
.above{margin:-8px 0 14px}
.mark{white-space:nowrap}
.dash{display:inline-block;width:22px;margin:0 6px 4px 8px;border-top:2px dashed var(--bad)}
.tick{display:inline-block;width:3px;height:9px;margin:0 7px 0 12px;background:var(--warn)}
.aside li{margin:3px 0;overflow-wrap:anywhere}
footer{margin-top:44px;border-top:1px solid var(--line);padding-top:14px;color:var(--muted);font-size:13px}
@media screen and (max-width:860px){
  .charts{grid-template-columns:minmax(0,1fr)}
  .figures{grid-template-columns:repeat(3,minmax(0,1fr))}
}
@media screen and (max-width:600px){
  main{padding:22px 12px 36px}
  h1{font-size:25px}
  h2{margin-top:32px}
  figure{padding:13px 10px 12px}
  .verdict{padding:13px 14px}
  .figures{grid-template-columns:repeat(2,minmax(0,1fr));gap:8px}
  .figures div{padding:10px 12px}
  .figures dd{font-size:18px}
  .settings{grid-template-columns:minmax(0,1fr);padding:8px 14px}
  th,td{padding:8px 10px}
  .broad{display:none!important}
  .narrow{display:block!important}
}
@page{size:A4;margin:12mm}
@media print{
  body{background:none;font-size:12px}
  main{max-width:none;padding:0}
  h1{font-size:22px}
  h2{margin:18px 0 8px;font-size:15px;break-after:avoid}
  h3,.verdict h3{font-size:13px}
  .verdict{padding:9px 12px}
  .verdict ul,.verdict .steps,.settings div,figcaption,.aside{font-size:11px;margin-top:3px}
  .figures dd{font-size:15px}
  .figures div{padding:6px 10px}
  .settings{grid-template-columns:repeat(2,minmax(0,1fr))}
  .charts{gap:8px}
  figure{padding:9px 8px}
  figure.wide{grid-column:auto}
  .broad{display:none!important}
  .narrow{display:block!important}
  figure,.verdict,.figures div,tr{break-inside:avoid}
  .card{box-shadow:none}
}
"""
